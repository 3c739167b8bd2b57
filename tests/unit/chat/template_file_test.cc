#include "mtrain/chat/template_file.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/chat/ready_made.h"

using namespace mtrain;
using namespace mtrain::chat;

namespace {

struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "mtrain-chat-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()));
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  void put(const char* name, std::string_view text) const { std::ofstream(path / name) << text; }
  fs::path path;
};

std::string failure(const fs::path& path, const std::string& which = "default") {
  try {
    read_template(path, which);
  } catch (const Error& e) {
    return e.message() + " " + e.hint();
  }
  return "";
}

}  // namespace

TEST_CASE("a template is found where models keep it, with the tokens it may name") {
  Folder model;
  CHECK(failure(model.path).find("neither chat_template.jinja nor tokenizer_config.json") !=
        std::string::npos);
  CHECK(failure(model.path).find("by its name, such as chatml") != std::string::npos);
  model.put("tokenizer_config.json",
            R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null,
    "chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]})");
  TemplateFile file = read_template(model.path);
  CHECK(file.source == "D");
  CHECK(file.name == "tokenizer_config.json");
  CHECK(file.special ==
        std::map<std::string, std::string>{{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  CHECK(read_template(model.path / "tokenizer_config.json", "tool_use").source == "T");
  CHECK(file.has_names);
  CHECK(failure(model.path, "rag").find("there are: default, tool_use") != std::string::npos);
  model.put("chat_template.jinja", "J");
  CHECK(read_template(model.path).source == "J");
  CHECK_FALSE(read_template(model.path).has_names);
  CHECK(read_template(model.path).special.at("eos_token") == "</s>");
  model.put("other.jinja", "O");
  CHECK(read_template(model.path / "other.jinja").source == "O");
}

TEST_CASE("a template is given by its file, or by the name of one that comes with mtrain") {
  Folder model;
  model.put("other.jinja", "O");
  CHECK(find_template((model.path / "other.jinja").string()).source == "O");
  CHECK(find_template("chatml").source == ready_made("chatml").source);
  for (const auto& [given, says] : {std::pair{"chatm", "did you mean chatml?"},
                                    {"nowhere/t.jinja", "mtrain has alpaca, chatml"}})
    try {
      (void)find_template(given);
      FAIL_CHECK(given);
    } catch (const Error& e) {
      CHECK_MESSAGE(e.hint().find(says) != std::string::npos, e.hint());
      CHECK(e.message().find(given) != std::string::npos);
    }
}

TEST_CASE("settings that are none say so") {
  Folder model;
  model.put("tokenizer_config.json", "[1]");
  CHECK(failure(model.path).find("is not a JSON object") != std::string::npos);
  model.put("tokenizer_config.json", "{}");
  CHECK(failure(model.path).find("has no chat_template") != std::string::npos);
  model.put("tokenizer_config.json", R"({"chat_template": [1, {"name": 2}]})");
  CHECK(failure(model.path).find("has none named 'default'") != std::string::npos);
}
