// The tables of tests/golden/config: what Hydra and OmegaConf make of each input, and where this
// differs on purpose.
#include <doctest/doctest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mtrain/base/text.h"
#include "mtrain/config/compose.h"
#include "mtrain/config/interpolate.h"
#include "mtrain/config/sweep.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_write.h"
#include "roots.h"

using namespace mtrain;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

const Json kError = {{"error", true}};

Json table(const std::string& name) {
  std::ifstream file(testing::source_root() / "tests/golden/config" / (name + ".json"));
  REQUIRE(file.good());
  return Json::parse(file);
}

/// As the generator writes values: a map is a list of pairs after ["map"], and inf and nan are
/// words.
Json plain(const Node& node) {
  switch (node.kind()) {
    case NodeKind::null:
      return nullptr;
    case NodeKind::boolean:
      return node.as_bool();
    case NodeKind::integer:
      return node.as_int();
    case NodeKind::number: {
      double value = node.as_double();
      if (std::isfinite(value)) return value;
      return {{"float", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
    }
    case NodeKind::string:
      return node.as_text();
    case NodeKind::list: {
      Json out = Json::array();
      for (const auto& item : node.items()) out.push_back(plain(item));
      return out;
    }
    case NodeKind::map: {
      Json out = Json::array({Json::array({"map"})});
      for (const auto& entry : node.entries())
        out.push_back(Json::array({entry.key, plain(entry.value)}));
      return out;
    }
  }
  return nullptr;
}

Json run_override(const Json& input) {
  Report report;
  auto read = parse_override({input.get<std::string>(), 1}, report, true);
  if (!read || !report.ok()) return kError;
  if (read->sweep) return {{"sweep", true}};
  constexpr const char* kSigns[] = {"", "+", "++", "~"};
  Json out = {{"key", read->key}, {"sign", kSigns[static_cast<int>(read->kind)]}};
  if (read->value) out["value"] = plain(*read->value);
  return out;
}

Json run_sweep(const Json& input) {
  static const Json kGroups = table("library")["groups"];
  SweepRequest request;
  for (const auto& text : input) request.overrides.push_back({text.get<std::string>(), 1});
  request.options_of = [](const std::string& group) {
    return kGroups.value(group, std::vector<std::string>());
  };
  Report report;
  auto sweep = read_sweep(request, report);
  auto trials = sweep ? expand(*sweep, report) : std::vector<std::vector<OverrideText>>();
  if (!report.ok()) return kError;
  Json out = Json::array();
  for (const auto& trial : trials) {
    Json texts = Json::array();
    for (const auto& text : trial) {
      auto read = parse_override(text, report);
      REQUIRE(read.has_value());
      texts.push_back(Json::array({read->key, plain(read->value.value_or(Node()))}));
    }
    out.push_back(std::move(texts));
  }
  return out;
}

/// The config groups of the tables, as files.
class Library {
 public:
  Library() : root_(fs::temp_directory_path() / cat("mtrain_conformance_", ::getpid())) {
    const Json library = table("library");
    for (const auto& [path, text] : library["files"].items()) {
      fs::create_directories((root_ / path).parent_path());
      std::ofstream(root_ / path) << text.get<std::string>();
    }
  }
  ~Library() { fs::remove_all(root_); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  Json run(const Json& input) const {
    ComposeRequest request;
    request.recipe = (root_ / "config.yaml").string();
    request.text = input["recipe"].get<std::string>();
    for (const auto& text : input["overrides"])
      request.overrides.push_back({text.get<std::string>(), 1});
    Report report;
    auto out = compose(request, report);
    return out && report.ok() ? plain(out->tree) : kError;
  }

 private:
  fs::path root_;
};

std::optional<Node> read_text(const Json& text) {
  Report report;
  return load_yaml(std::make_shared<Source>(SourceKind::file, "x.yaml", text.get<std::string>()),
                   report);
}

Json run_interpolation(const Json& input) {
  auto root = read_text(input);
  if (!root) return kError;
  Report report;
  interpolate(*root, {}, report);
  return report.ok() ? plain(*root) : kError;
}

Json run_merge(const Json& input) {
  Node out = *read_text(input[0]);
  for (size_t i = 1; i < input.size(); ++i) out.merge(*read_text(input[i]));
  return plain(out);
}

Json run_path(const Json& input) {
  auto root = read_text(input[0]);
  const Node* found = root->find(input[1].get<std::string>());
  return found ? plain(*found) : Json(nullptr);
}

/// Runs a table; the number of its cases.
template <class Run>
size_t check_rows(const std::string& name, Run run) {
  Json cases = table(name);
  for (const auto& item : cases["cases"]) {
    std::string rule = item["rule"], input = item["input"].dump();
    CAPTURE(rule);
    CAPTURE(input);
    bool differs = item.contains("differs");
    std::string got = run(item["input"]).dump(),
                wanted = (differs ? item["ours"] : item["result"]).dump();
    CHECK(got == wanted);
    // A deviation that is none any more must leave the list.
    if (differs) CHECK(item["ours"] != item["result"]);
  }
  return cases["cases"].size();
}

}  // namespace

TEST_CASE(
    "overrides, composition, interpolation, merging and sweeps are those of Hydra and OmegaConf") {
  ::setenv("CONFORMANCE_TEXT", "text", 1);
  ::setenv("CONFORMANCE_NUMBER", "12", 1);
  Library library;
  size_t count = check_rows("overrides", run_override);
  count += check_rows("sweeps", run_sweep);
  count += check_rows("composition", [&](const Json& input) { return library.run(input); });
  count += check_rows("interpolation", run_interpolation);
  count += check_rows("merging", run_merge);
  count += check_rows("paths", run_path);
  CHECK(count >= 250);
  MESSAGE(count, " cases");
}
