// Folders of configs, and what a recipe that includes them is composed to; for the tests of
// compose.h.
#pragma once
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "mtrain/base/text.h"
#include "mtrain/config/compose.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain::testing {

namespace fs = std::filesystem;

/// A folder of configs that is removed at the end.
class Folder {
 public:
  explicit Folder(const std::vector<std::pair<std::string, std::string>>& files) {
    static int count = 0;
    root_ = fs::temp_directory_path() / cat("mtrain_compose_", ::getpid(), "_", count++);
    for (const auto& [path, text] : files) {
      fs::path file = root_ / path;
      fs::create_directories(file.parent_path());
      std::ofstream(file) << text;
    }
  }
  ~Folder() { fs::remove_all(root_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
};

inline const std::vector<std::pair<std::string, std::string>> kLibrary = {
    {"db/mysql.yaml", "host: my\nuser: root\n"},
    {"db/sqlite.yaml", "host: lite\nfile: x.db\n"},
    {"db/pg.yaml", "host: pg\n"},
    {"db/nested/deep.yaml", "host: deep\n"},
    {"optim/adam.yaml", "type: adam\nlr: 3\neps: 1\n"},
    {"optim/slow.yaml", "type: adam\nlr: 1\n"},
    {"tune/lora.yaml", "type: lora\nrank: 32\nalpha: 32\n"},
    {"tune/qlora.yaml", "type: lora\nbase: nf4\nrank: 32\nalpha: 32\n"},
    {"tune/dora.yaml", "type: dora\nrank: 32\nalpha: 16\n"},
    {"server/apache.yaml", "defaults:\n- db: mysql\nport: 80\n"},
    {"server/nginx.yaml", "port: 81\n"},
    {"server/db/mysql.yaml", "kind: server-mysql\n"},
    {"server/db/sqlite.yaml", "kind: server-sqlite\n"},
    {"g/absolute.yaml", "defaults:\n- /server/db: mysql\n"},
    {"g/here.yaml", "defaults:\n- /server/db@_here_: mysql\n"},
    {"g/global.yaml", "defaults:\n- /server/db@_global_.foo: mysql\n"},
    {"g/header.yaml", "# @package x.w\nv: 1\n"},
    {"g/header_global.yaml", "# comment\n# @package _global_\nv: 1\n"},
    {"g/late_header.yaml", "v: 1\n# @package x.w\n"},
    {"exp/a.yaml", "# @package _global_\ndefaults:\n- override /db: pg\nlr: 5\n"},
    {"exp/b.yaml", "# @package _global_\nlr: 6\n"},
    {"outer/o.yaml", "# @package _global_\ndefaults:\n- /exp: a\n- override /db: sqlite\n"},
    {"mix/mysql_apache.yaml", "mixed: true\n"},
    {"mix/over.yaml", "defaults:\n- override /db: pg\n"},
    {"loop/one.yaml", "defaults:\n- two\n"},
    {"loop/two.yaml", "defaults:\n- one\n"},
    {"bad/syntax.yaml", "a: [1\n"},
    {"common.yaml", "shared: 1\n"},
};

struct Case {
  const char* recipe;
  std::vector<std::string> overrides;
  const char* result;  // the tree as one line, or words of the report
};

inline std::string compose_text(const Folder& folder, const Case& item,
                                std::vector<ComposedFile>* files = nullptr,
                                ComposeRequest request = {}) {
  request.recipe = (folder.root() / "recipe.yaml").string();
  request.text = item.recipe;
  int argument = 1;
  for (const auto& text : item.overrides) request.overrides.push_back({text, argument++});
  Report report;
  auto out = compose(request, report);
  if (files && out) *files = out->files;
  return out && report.ok() ? write_flow(out->tree) : report.text();
}

inline void check(const std::vector<Case>& cases) {
  Folder folder(kLibrary);
  for (const auto& item : cases) {
    std::string overrides = join(item.overrides, " ");
    CAPTURE(item.recipe);
    CAPTURE(overrides);
    std::string result = compose_text(folder, item);
    CAPTURE(result);
    if (item.result[0] == '{')
      CHECK(result == item.result);
    else
      CHECK(result.find(item.result) != std::string::npos);
    if (item.result[0] != '{') CHECK(result.find("error[") == 0);
  }
}

}  // namespace mtrain::testing
