#include "mtrain/recipe/recipe_schema.h"

#include <nlohmann/json.hpp>

namespace mtrain {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Adds the component's properties to the core's; a nested section that both have is merged.
void lay_over(OrderedJson& into, const OrderedJson& from) {
  for (const auto& [key, value] : from.items()) {
    if (into.contains(key) && into[key].is_object() && value.is_object())
      lay_over(into[key], value);
    else
      into[key] = value;
  }
}

OrderedJson section_schema(const Schema& schema, const SchemaCatalog& catalog) {
  OrderedJson json = OrderedJson::parse(json_schema_of(schema));
  json.erase("$schema");
  json.erase("title");
  for (const auto& spec : schema.fields)
    if (!spec.plugin_kind.empty() && spec.path.find('.') == std::string::npos)
      json["properties"][spec.path]["anyOf"][0] = {{"enum", catalog.components(spec.plugin_kind)}};
  return json;
}

// A section of the core: its settings, or the name of an option of its group.
OrderedJson section_or_preset(const Schema& section, const SchemaCatalog& catalog) {
  OrderedJson settings = section_schema(section, catalog);
  settings["title"] = section.name;
  OrderedJson option = {{"title", section.name + ": an option of its config group"},
                        {"type", "string"}};
  return {{"description", section.doc}, {"anyOf", {settings, option}}};
}

OrderedJson section_with_components(const Schema& section, const SchemaCatalog& catalog,
                                    const std::string& kind) {
  OrderedJson variants = OrderedJson::array();
  OrderedJson names = OrderedJson::array();
  for (const auto& name : catalog.components(kind)) {
    names.push_back(name);
    const Schema* component = catalog.component(kind, name);
    OrderedJson variant = section_schema(section, catalog);
    lay_over(variant["properties"], section_schema(*component, catalog)["properties"]);
    variant["title"] = section.name + ": " + name;
    variant["properties"]["type"] = {{"const", name}, {"description", component->doc}};
    variants.push_back(std::move(variant));
  }
  // The settings of a plugin that is not installed are unknown.
  const OrderedJson other_name = {
      {"type", "string"}, {"pattern", "^[a-z0-9_]+$"}, {"not", {{"enum", names}}}};
  OrderedJson other = section_schema(section, catalog);
  other["title"] = section.name + ": a plugin of your own";
  other["properties"]["type"] = other_name;
  other["additionalProperties"] = true;
  other["required"] = {"type"};
  variants.push_back(std::move(other));
  variants.push_back(
      {{"title", section.name + ": a plugin by name"}, {"anyOf", {{{"enum", names}}, other_name}}});
  return {{"description", section.doc}, {"anyOf", variants}};
}

// The keys of composition.
OrderedJson composition_schema() {
  OrderedJson choice = {{"type", "object"},
                        {"description", "group: option"},
                        {"minProperties", 1},
                        {"maxProperties", 1}};
  OrderedJson text = {{"type", "string"}};
  return {
      {"defaults",
       {{"description",
         "the files that this one overrides; _self_ is its own position in the order"},
        {"type", "array"},
        {"items", {{"anyOf", {text, choice}}}}}},
      {"patch",
       {{"description", "overrides, as on the command line"}, {"type", "array"}, {"items", text}}},
      {"sweep",
       {{"description", "setting: its values, as on the command line of a sweep"},
        {"type", "object"}}}};
}

}  // namespace

std::string recipe_json_schema(const SchemaCatalog& catalog) {
  OrderedJson root = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                      {"title", "mtrain recipe"},
                      {"description", "what `mtrain RECIPE` reads"},
                      {"type", "object"},
                      {"additionalProperties", false},
                      {"properties", composition_schema()}};
  for (const auto& section : catalog.sections()) {
    std::string kind = catalog.kind_of(section.name);
    root["properties"][section.name] = kind.empty()
                                           ? section_or_preset(section, catalog)
                                           : section_with_components(section, catalog, kind);
  }
  return root.dump(1) + "\n";
}

}  // namespace mtrain
