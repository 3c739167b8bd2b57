// The schemas of the core's sections and of planned components, as data: documented, consistent,
// and in the way of nothing that is installed.
#include "mtrain/recipe/settings.h"

#include <doctest/doctest.h>

#include <set>

#include "mtrain/config/schema.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/recipe/planned.h"

using namespace mtrain;

namespace {

constexpr const char* kKinds[] = {"model",     "tokenizer", "dataset", "objective",
                                  "optimizer", "backend",   "comm"};

SchemaCatalog sections() {
  SchemaCatalog out;
  Settings settings;
  Settings::each(settings, [&](const char* name, const char* doc, const char*, auto& part) {
    Fields fields;
    part.bind(fields);
    Schema schema{name, doc, {}, {}};
    for (const auto& field : fields.fields()) schema.fields.push_back(field.spec);
    out.add_section(std::move(schema));
  });
  return out;
}

/// Every setting at its default, as a recipe would say it.
Node all_defaults(const Schema& schema) {
  Node out = Node::map();
  for (const auto& spec : schema.fields)
    if (!spec.required && !spec.default_value.empty())
      out.set(spec.path, parse_yaml(spec.default_value));
  return out;
}

void check_schema(const Schema& schema) {
  CAPTURE(schema.name);
  CHECK(!schema.doc.empty());
  std::set<std::string> paths, old;
  for (const auto& spec : schema.fields) paths.insert(spec.path);
  for (const auto& spec : schema.fields) {
    CAPTURE(spec.path);
    CHECK(!spec.doc.empty());
    for (const auto& name : spec.renamed_from) {
      CHECK(!paths.contains(name));
      CHECK(old.insert(name).second);
    }
    for (const auto& value : spec.needs_values)
      CHECK(std::count(spec.choices.begin(), spec.choices.end(), value) == 1);
    CHECK((spec.needs_values.empty() || !spec.needs.empty()));
  }
  Report report;
  validate(all_defaults(schema), schema, report);
  for (const auto& fault : report.diagnostics())
    CHECK_MESSAGE(fault.code == "missing", render(fault));
}

}  // namespace

TEST_CASE("every setting is documented, its default is allowed, and its other names are its own") {
  SchemaCatalog catalog = sections();
  add_planned(catalog);
  for (const auto& schema : catalog.sections()) check_schema(schema);
  size_t planned = 0;
  for (const char* kind : kKinds)
    for (const auto& name : catalog.components(kind)) {
      const Schema& schema = *catalog.component(kind, name);
      check_schema(schema);
      const bool built =
          name == "cpu" || name == "thread" || name == "tokens" || name == "distillation";
      CHECK(schema.needs.empty() == built);
      ++planned;
    }
  CHECK(planned >= 8);
}

TEST_CASE("what is planned gives way to what is installed") {
  SchemaCatalog catalog = sections();
  catalog.add_component("comm", {"mpi", "a plugin's", {}, {}});
  catalog.add_unusable("model", "moe", "of another mtrain", "build it again");
  add_planned(catalog);
  CHECK(catalog.component("comm", "mpi")->doc == "a plugin's");
  CHECK(catalog.component("model", "moe") == nullptr);
  CHECK(catalog.unusable("model", "moe") != nullptr);
  CHECK(catalog.component("comm", "nccl")->needs == "NCCL communication");
}
