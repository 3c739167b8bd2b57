#include "mtrain/config/setting_names.h"

#include <filesystem>
#include <memory>
#include <optional>

#include "mtrain/base/text.h"
#include "mtrain/config/component_names.h"
#include "mtrain/config/yaml_mistakes.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

/// The catalog without the settings of components that the recipe does not choose.
SchemaCatalog with_settings_of(const ChosenComponents& chosen, const SchemaCatalog& catalog) {
  SchemaCatalog out = catalog;
  for (const auto& [section, schema] : chosen)
    for (const std::string& name : catalog.components(catalog.kind_of(section))) {
      if (name == schema->name) continue;
      Schema empty;
      empty.name = name;
      out.add_component(catalog.kind_of(section), std::move(empty));
    }
  return out;
}

/// The catalog's advice on a name. Where it is a setting that the chosen component does not have,
/// the advice says so.
std::string advice_for(std::string_view wanted, const ChosenComponents& chosen,
                       const SchemaCatalog& catalog, const SchemaCatalog& own) {
  std::string help = own.advice(wanted);
  if (!help.empty()) return help;
  help = catalog.advice(wanted);
  constexpr std::string_view kUse = "use ";
  if (!help.starts_with(kUse)) return help;
  const std::string setting =
      help.substr(kUse.size(), help.find_first_of(" :=,(", kUse.size()) - kUse.size());
  for (const auto& [section, schema] : chosen)
    if (setting.starts_with(section + "."))
      if (const std::string why = setting_of_others(setting, wanted, *schema, catalog);
          !why.empty())
        return cat(help, "; but ", why);
  return help;
}

/// The empty section before a key of the root that has a setting of this name: the key was probably
/// not indented. "" when there is none.
std::string empty_section_above(const Node::Entry& entry, const Node& tree,
                                const SchemaCatalog& catalog) {
  for (const auto& section : tree.entries()) {
    const Location &above = section.key_where, &here = entry.key_where;
    if (!section.value.is_null() || !above || !here || above.source != here.source ||
        above.line >= here.line)
      continue;
    for (const Schema* owner : catalog.all_owners(section.key))
      for (const auto& spec : owner->fields)
        if (spec.path == entry.key) return section.key;
  }
  return {};
}

/// "optimizer" for a key of optimizer/adamw.yaml, which was given as a recipe; "" for other files.
std::string group_of(const Node::Entry& entry, const SchemaCatalog& catalog) {
  if (!entry.key_where || entry.key_where.source->kind() != SourceKind::file) return {};
  const std::string group =
      std::filesystem::path(entry.key_where.source->name()).parent_path().filename().string();
  for (const Schema* owner : catalog.all_owners(group))
    for (const auto& spec : owner->fields)
      if (spec.path.substr(0, spec.path.find('.')) == entry.key) return group;
  return {};
}

}  // namespace

KeyIndex all_names(const SchemaCatalog& catalog, const ChosenComponents& chosen) {
  KeyIndex index;
  auto own = std::make_shared<std::optional<SchemaCatalog>>();
  index.set_advisor([&catalog, chosen, own](std::string_view wanted) {
    std::string help = component_as_key(wanted, catalog);
    for (const auto& [section, schema] : chosen)
      if (help.empty() && wanted.starts_with(section + "."))
        help = setting_of_others(wanted, wanted, *schema, catalog);
    if (!help.empty()) return help;
    if (!*own) own->emplace(with_settings_of(chosen, catalog));
    return advice_for(wanted, chosen, catalog, **own);
  });
  for (const char* word : {"defaults", "patch", "sweep"}) index.add(word);
  for (const auto& schema : catalog.sections()) {
    index.add(schema.name);
    index.add_schema(schema, schema.name);
  }
  for (const auto& [section, schema] : chosen) index.add_schema(*schema, section);
  return index;
}

void unknown_section(const Node::Entry& entry, const Node& tree, const KeyIndex& known,
                     bool suggests, const SchemaCatalog& catalog, Report& report) {
  std::string meant = entry.key;
  for (const Node* at = &entry.value; at->is_map() && at->size() == 1; at = &at->entries()[0].value)
    meant = join_path(meant, at->entries()[0].key);
  auto& fault = report.error("unknown-key", meant, entry.key_where, "no such setting");
  if (!suggests) return;
  if (std::string text = entry.value.is_null() ? meant_entry(entry.key) : ""; !text.empty()) {
    fault.fix(cat("write `", text, "`: a key and its value are separated by ':' and a space"));
    return;
  }
  if (entry.key.find('.') != std::string::npos && entry.value.is_scalar() &&
      !catalog.all_owners(entry.key.substr(0, entry.key.find('.'))).empty()) {
    fault.fix(cat("write `", meant_entry(cat(entry.key, ": ", brief(entry.value))),
                  "`: a dot in a YAML key is part of its name"));
    return;
  }
  if (std::string section = empty_section_above(entry, tree, catalog); !section.empty()) {
    fault.fix(cat("indent it by 2 spaces: it is a setting of '", section, ":'"));
    return;
  }
  if (std::string group = group_of(entry, catalog); !group.empty()) {
    const std::string option =
        std::filesystem::path(entry.key_where.source->name()).stem().string();
    fault.fix(cat("this file is an option of the group '", group, "': choose it in a recipe, ",
                  group, "=", visible(option, 60)));
    return;
  }
  std::string help = known.help(meant);
  fault.fix(help.empty() ? known.help(entry.key) : std::move(help));
}

}  // namespace mtrain
