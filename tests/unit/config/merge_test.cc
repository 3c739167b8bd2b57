#include "mtrain/config/merge.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "mtrain/base/text.h"
#include "mtrain/config/container.h"
#include "mtrain/config/provenance.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_write.h"

using namespace mtrain;
namespace fs = std::filesystem;

namespace {

struct DataConfig {
  int64_t seq_length = 1024;
  std::vector<std::string> files, filters;
  Node sources = Node::list(), whole = Node::map();
  void bind(Fields& f) {
    f("seq_length", seq_length, "length of a sample");
    f("files", files, "files").merge_append();
    f("filters", filters, "filters");
    f("sources", sources, "sources").merge_by("name");
    f("whole", whole, "a map").merge_replace();
  }
};

struct RopeConfig {
  double theta = 1e4;
  void bind(Fields& f) { f("theta", theta, "base").renamed_from({"rotary_base", "old.base"}); }
};

struct ModelConfig {
  std::string type = "m";
  void bind(Fields& f) { f("type", type, "which").plugin("model"); }
};

struct ComponentConfig {
  int64_t seq_length = 0, ffn = 0, hidden = 8;
  std::vector<std::string> hooks;
  RopeConfig rope;
  void bind(Fields& f) {
    f("seq_length", seq_length, "from the data").derived("${data.seq_length}");
    f("hidden", hidden, "width");
    f("ffn", ffn, "inner width").derived("${= 4 * ${.hidden}}");
    f("hooks", hooks, "hooks").merge_append();
    f.section("rope", rope);
  }
};

SchemaCatalog merge_catalog() {
  SchemaCatalog out;
  out.add_section(schema_of<DataConfig>("data", "the data"));
  out.add_section(schema_of<ModelConfig>("model", "the model"));
  out.add_component("model", schema_of<ComponentConfig>("m", "a model"));
  return out;
}

std::string merged(const std::string& recipe, const std::string& base,
                   std::vector<std::string> overrides, ConfigContainer* container = nullptr) {
  fs::path folder = fs::temp_directory_path() / cat("mtrain_merge_", ::getpid());
  fs::create_directories(folder);
  std::ofstream(folder / "base.yaml") << base;
  ConfigRequest request;
  request.recipe = (folder / "r.yaml").string();
  request.text = recipe;
  for (auto& text : overrides) request.overrides.push_back({std::move(text), 2});
  Report report;
  ConfigContainer out = ConfigContainer::load(request, merge_catalog(), report);
  fs::remove_all(folder);
  if (container) *container = out;
  return report.ok() ? write_flow(out.root()) : report.text();
}

constexpr const char* kOver = "defaults: [base]\n";

}  // namespace

TEST_CASE("a schema says how the values of several files join") {
  struct Row {
    const char* base;
    const char* recipe;
    std::vector<std::string> overrides;
    const char* path;
    const char* result;
  };
  const Row rows[] = {
      {"data: {files: [a]}", "data: {files: [b]}", {}, "data.files", "[a, b]"},
      {"data: {filters: [a]}", "data: {filters: [b]}", {}, "data.filters", "[b]"},
      {"data: {files: [a]}", "data: {files: [b]}", {"data.files=[c]"}, "data.files", "[c]"},
      {"data: {files: [a]}",
       "data: {files: [b]}",
       {"data.files=append(c)"},
       "data.files",
       "[a, b, c]"},
      {"data: {files: [a]}", "data: {files: ???}", {}, "data.files", "[a]"},
      {"data: {}", "data: {files: [b]}", {}, "data.files", "[b]"},
      {"data: {sources: [{name: p, w1: 1}, {name: q}]}",
       "data: {sources: [{name: p, w2: 2}, {name: r}, 3]}",
       {},
       "data.sources",
       "[{name: p, w1: 1, w2: 2}, {name: q}, {name: r}, 3]"},
      {"data: {whole: {a: 1}}", "data: {whole: {b: 1}}", {}, "data.whole", "{b: 1}"},
      {"model: {hooks: [a]}", "model: {type: m, hooks: [b]}", {}, "model.hooks", "[a, b]"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.recipe);
    ConfigContainer container;
    std::string all = merged(std::string(kOver) + row.recipe, row.base, row.overrides, &container);
    CAPTURE(all);
    REQUIRE_FALSE(all.starts_with("error["));
    CHECK(write_flow(container.root().at(row.path)) == row.result);
  }
  ConfigContainer container;
  merged(std::string(kOver) + "data: {files: [b]}", "data: {files: [a]}", {}, &container);
  CHECK(container.composition()
            .tree.at("data.files")
            .items()[0]
            .loc()
            .text()
            .ends_with("base.yaml:1:16"));
  CHECK(container.composition()
            .tree.at("data.files")
            .items()[1]
            .loc()
            .text()
            .ends_with("r.yaml:2:16"));
  for (const char* text : {"deep", "replace", "append", "by(name)"})
    CHECK(name(*merge_rule(text)) == text);
  for (const char* text : {"", "by()", "by(x", "Append"}) CHECK_FALSE(merge_rule(text).has_value());
}

TEST_CASE("a derived setting is computed and cannot be set") {
  ConfigContainer container;
  std::string all = merged("data: {seq_length: 64}\nmodel: {hidden: 16}\n", "", {}, &container);
  CHECK_FALSE(all.starts_with("error["));
  CHECK(container.root().at("model.seq_length").as_int() == 64);
  CHECK(container.root().at("model.ffn").as_int() == 64);
  CHECK(container.component("model").at("ffn").as_int() == 64);
  CHECK(why_text(container, "model.ffn").find("${= 4 * ${.hidden}}") != std::string::npos);
  // From the defaults of others, and as what others are computed from.
  CHECK(merged("data: {files: [\"n${model.seq_length}\"]}\n", "", {}).find("n1024") !=
        std::string::npos);
  // The written configuration leaves them out, so that it can be read again.
  std::string yaml = container.to_yaml();
  CHECK(yaml.find("ffn") == std::string::npos);
  ConfigContainer again;
  CHECK(merged(yaml, "", {}, &again) == all);
  CHECK(again.to_yaml() == yaml);

  std::string fault = merged("model:\n  seq_length: 5\n", "", {"model.ffn=7"});
  CHECK(fault.find("r.yaml:2:15") != std::string::npos);
  CHECK(fault.find("set data.seq_length: 5 instead") != std::string::npos);
  CHECK(fault.find("set model.hidden: 7 instead") != std::string::npos);
  CHECK(fault.find("2 errors") != std::string::npos);
}

TEST_CASE(
    "the text forms of a schema hold merging, derivation and former names of nested settings") {
  Schema schema = schema_of<ComponentConfig>("m", "");
  Schema read = schema_from_json(schema_to_json(schema));
  CHECK(schema_to_json(read) == schema_to_json(schema));
  CHECK(read.fields[0].derived == "${data.seq_length}");
  CHECK(name(read.fields[3].merge) == "append");
  CHECK(describe(read.fields[2]).find("computed from") != std::string::npos);
  std::string broken = schema_to_json(schema);
  broken.replace(broken.find("\"append\""), 8, "\"appendix\"");
  CHECK_THROWS(schema_from_json(broken));

  auto json = nlohmann::json::parse(json_schema_of(schema));
  const auto& top = json["properties"];
  CHECK(top["rope"]["properties"]["theta"].contains("anyOf"));
  CHECK(top["rotary_base"]["deprecated"] == true);
  CHECK(top["rope"]["properties"]["rotary_base"]["deprecated"] == true);
  CHECK(top["old"]["properties"]["base"]["deprecated"] == true);
  CHECK(top["ffn"]["readOnly"] == true);
  // All of these are read by validate() too.
  for (const char* yaml : {"rotary_base: 5.0", "rope: {rotary_base: 5.0}", "old: {base: 5.0}"}) {
    CAPTURE(yaml);
    Report report;
    Node out = validate(parse_yaml(yaml), schema, report);
    CAPTURE(report.text());
    CHECK(report.ok());
    CHECK(out.at("rope.theta").as_double() == 5);
  }
}

TEST_CASE("the settings that an expression reads, also behind a brace in quotes") {
  Node root = Node::map();
  for (const char* path : {"a.b", "c.d"}) root.set(path, Node::integer(1));
  CHECK(inputs_of(root, "x", "${= a.b if '}' == '}' else c.d}") ==
        std::vector<std::string>{"a.b", "c.d"});
}
