#include "mtrain/recipe/new_recipe.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/provenance.h"
#include "mtrain/config/schema.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr std::string_view kModeline = "# yaml-language-server:";

/// A valid value to start with, for the user to change.
Node first_value(const FieldSpec& spec) {
  if (!spec.example.empty()) return parse_yaml(spec.example);
  if (!spec.choices.empty()) return Node::string(spec.choices.front());
  if (spec.type == FieldType::integer || spec.type == FieldType::number)
    return Node::integer(static_cast<int64_t>(spec.min.value_or(1)));
  return Node::string("???");
}

const Schema& component_of(const SchemaCatalog& catalog, const std::string& kind,
                           const std::string& name) {
  const Schema* found = catalog.component(kind, name);
  if (found) return *found;
  auto near = nearest(name, catalog.components(kind), 1);
  throw Error(ErrorClass::config, cat("there is no ", kind, " '", printable(name, 60), "'"),
              near.empty() ? cat("there are: ", join(catalog.components(kind), ", "))
                           : cat("did you mean ", near[0], "?"));
}

/// The default dataset for a model.
std::string dataset_for(const Schema& model, const SchemaCatalog& catalog) {
  std::vector<std::string> names = catalog.components("dataset");
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& name) { return name == "gpt"; });
  for (const std::string& wanted : {model.objective, std::string(Fields::kAnyObjective)})
    for (const auto& name : names)
      if (const Schema* dataset = catalog.component("dataset", name);
          dataset->objective == wanted && dataset->needs.empty())
        return name;
  return "gpt";
}

}  // namespace

std::string with_modeline(const std::string& text, const std::string& schema) {
  std::string out = cat(kModeline, " $schema=", schema, "\n");
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    if (!std::string_view(text).substr(at).starts_with(kModeline)) out.append(text, at, end - at);
    at = end;
  }
  return out;
}

std::string new_recipe(const SchemaCatalog& catalog, const std::string& model,
                       const std::string& dataset) {
  const std::string fed =
      dataset.empty() ? dataset_for(component_of(catalog, "model", model), catalog) : dataset;
  Node recipe = Node::map();
  std::map<std::string, std::string> docs;
  auto require = [&](const std::string& section, const Schema& schema, const std::string& type) {
    for (const auto& spec : schema.fields) {
      std::string path = section + "." + spec.path;
      if (!spec.required || recipe.find(path)) continue;
      recipe.set(path, spec.path == "type" ? Node::string(type) : first_value(spec));
      docs[path] = spec.doc;
    }
  };
  for (const auto& section : catalog.sections()) {
    const bool chosen = section.name == "model" || section.name == "dataset";
    const std::string& type = section.name == "model" ? model : fed;
    require(section.name, section, type);
    if (!chosen) continue;
    const Schema& component = component_of(catalog, section.name, type);
    require(section.name, component, type);
    // A dataset of files has several ways to name them, so no single one is required.
    for (const auto& spec : component.fields)
      if (section.name == "dataset" && spec.path == "path" && spec.input_path) {
        recipe.set("dataset.path", first_value(spec));
        docs["dataset.path"] = spec.doc;
      }
  }
  WriteOptions options;
  options.comment = [&](const std::string& path, const Node&) { return docs[path]; };
  return "# One line about this recipe, which `mtrain recipes ls` shows.\n" +
         write_yaml(recipe, options);
}

}  // namespace mtrain
