#include "mtrain/config/component_names.h"

#include <algorithm>
#include <optional>

#include "mtrain/base/text.h"
#include "mtrain/config/interpolate.h"
#include "mtrain/config/meant_values.h"
#include "mtrain/config/operand.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

void no_such_plugin(const std::string& kind, const std::string& path, const std::string& wanted,
                    const Location& where, const SchemaCatalog& catalog, Report& report) {
  if (const auto* bad = catalog.unusable(kind, wanted)) {
    report.error("plugin", path, where, bad->reason).fix(bad->remedy);
    return;
  }
  auto names = built_components(catalog, kind);
  auto& fault = report.error("unknown-plugin", path, where,
                             cat("there is no ", kind, " '", visible(wanted, 60), "'"));
  fault.note(names.empty() ? cat("no ", kind, " is installed") : "there are: " + join(names, ", "));
  if (!catalog.note_of(kind).empty()) fault.note(catalog.note_of(kind));
  fault.fix(meant_help(wanted, [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }));
  if (fault.help.empty()) fault.fix(catalog.component_advice(kind, wanted));
  auto near = nearest(wanted, names, 1);
  if (fault.help.empty() && !near.empty()) fault.fix(cat("did you mean ", near[0], "?"));
}

}  // namespace

std::string wanted_component(const Schema& section, const Node* given) {
  const Node* type = given ? given->get("type") : nullptr;
  if (type && !type->is_null()) {
    bool usable = type->is_scalar() && !type->is_missing() && !type->faulty() &&
                  !has_interpolation(type->as_text());
    return usable ? type->as_text() : "";
  }
  for (const auto& spec : section.fields)
    if (spec.path == "type" && resolve_scalar(spec.default_value) == NodeKind::string)
      return parse_yaml(spec.default_value).as_text();
  return "";
}

std::vector<const Schema*> owners_in(const Node& tree, const std::string& section,
                                     const SchemaCatalog& catalog) {
  const Schema* schema = catalog.section(section);
  if (!schema) return {};
  return catalog.owners(section, wanted_component(*schema, tree.get(section)));
}

bool names_type(const std::string& section, const std::string& name, const SchemaCatalog& catalog) {
  const std::string kind = catalog.kind_of(section);
  if (!kind.empty()) return catalog.component(kind, name) != nullptr;
  const Schema* schema = catalog.section(section);
  if (!schema) return false;
  for (const auto& spec : schema->fields)
    if (spec.path == "type")
      return std::find(spec.choices.begin(), spec.choices.end(), name) != spec.choices.end();
  return false;
}

std::vector<std::string> built_components(const SchemaCatalog& catalog, const std::string& kind) {
  std::vector<std::string> out;
  for (auto& name : catalog.components(kind))
    if (catalog.component(kind, name)->needs.empty()) out.push_back(std::move(name));
  return out;
}

const Schema* component_of(const Schema& section, const Node& given, const SchemaCatalog& catalog,
                           Report& report) {
  std::string kind = catalog.kind_of(section.name);
  std::string wanted = kind.empty() ? "" : wanted_component(section, &given);
  if (wanted.empty()) return nullptr;
  if (const Schema* found = catalog.component(kind, wanted)) return found;
  const Node* type = given.get("type");
  no_such_plugin(kind, section.name + ".type", wanted, type ? type->loc() : Location(), catalog,
                 report);
  return nullptr;
}

void check_plugin_names(const Schema& schema, const Node& values, const std::string& path,
                        const SchemaCatalog& catalog, Report& report) {
  for (const auto& spec : schema.fields) {
    if (spec.plugin_kind.empty() || spec.path == "type") continue;
    const Node* value = values.find(spec.path);
    if (!value || value->is_null() || catalog.component(spec.plugin_kind, value->as_text()))
      continue;
    no_such_plugin(spec.plugin_kind, path + "." + spec.path, value->as_text(), value->loc(),
                   catalog, report);
  }
}

namespace {

/// True when one of the owners has a setting at a path or below it.
bool owns(const std::vector<const Schema*>& owners, const std::string& path, bool below) {
  for (const Schema* owner : owners)
    for (const FieldSpec& spec : owner->fields)
      if (below ? spec.path.starts_with(path + ".") : spec.path == path) return true;
  return false;
}

void drop_unowned(Node& map, const std::string& path, const SourcePtr& resolved,
                  const std::vector<const Schema*>& owners) {
  std::erase_if(map.entries(), [&](Node::Entry& entry) {
    const std::string child = join_path(path, entry.key);
    if (owns(owners, child, false)) return false;
    if (entry.value.is_map() && owns(owners, child, true)) {
      drop_unowned(entry.value, child, resolved, owners);
      return false;
    }
    return entry.value.loc().source == resolved;
  });
}

/// Removes what the saved recipe has only because it has all values: the defaults of the component
/// `before`. The one that `now` names may mean another thing by the same name, or may not have the
/// value.
void drop_defaults(Node& map, const std::string& path, const SourcePtr& resolved,
                   const Schema& before, const Schema& now) {
  std::erase_if(map.entries(), [&](Node::Entry& entry) {
    const std::string child = join_path(path, entry.key);
    const FieldSpec *theirs = setting_named(child, {&before}), *ours = setting_named(child, {&now});
    if (!theirs || !ours) {
      if (entry.value.is_map()) drop_defaults(entry.value, child, resolved, before, now);
      return false;
    }
    if (entry.value.loc().source != resolved) return false;
    const std::vector<std::string>& choices = ours->choices;
    const bool refused = !choices.empty() && entry.value.is_scalar() &&
                         std::ranges::find(choices, entry.value.as_text()) == choices.end();
    return refused || brief(entry.value) == brief(default_value(*theirs, ""));
  });
}

/// Settings that take the place of others: one file and several of them, with what belongs to the
/// several.
struct Replaces {
  const char* given;
  std::vector<const char*> others;
};
const std::vector<Replaces>& replacements() {
  static const std::vector<Replaces> all = {
      {"path", {"paths", "weights", "phases"}},         {"paths", {"path"}},
      {"valid_path", {"valid_paths", "valid_weights"}}, {"valid_paths", {"valid_path"}},
      {"test_path", {"test_paths", "test_weights"}},    {"test_paths", {"test_path"}}};
  return all;
}

bool says_something(const Node& value) {
  if (value.is_list()) return value.size() > 0;
  return value.is_scalar() && !value.is_null() && !value.as_text().empty();
}

/// Removes what the saved recipe has in the place of what an override gives.
void drop_alternatives(Node& given, const SourcePtr& resolved,
                       const std::vector<const Schema*>& owners) {
  auto typed = [&](const char* name) {
    const Node* value = given.get(name);
    return value && value->loc().source != resolved && says_something(*value);
  };
  for (const Replaces& one : replacements()) {
    const FieldSpec* spec = setting_named(one.given, owners);
    if (!spec || !spec->input_path || !typed(one.given)) continue;
    std::erase_if(given.entries(), [&](const Node::Entry& entry) {
      return std::ranges::find(one.others, entry.key) != one.others.end() &&
             entry.value.loc().source == resolved;
    });
  }
}

}  // namespace

void drop_replaced_settings(Node& tree, const SourcePtr& resolved, const SchemaCatalog& catalog) {
  std::optional<Node> saved;
  for (const Schema& section : catalog.sections()) {
    Node* given = tree.get(section.name);
    const Node* type = given ? given->get("type") : nullptr;
    if (!given || !given->is_map() || catalog.kind_of(section.name).empty()) continue;
    drop_alternatives(*given, resolved,
                      catalog.owners(section.name, wanted_component(section, given)));
    if (!type || type->loc().source == resolved) continue;
    const auto owners = catalog.owners(section.name, wanted_component(section, given));
    if (owners.size() < 2) continue;
    drop_unowned(*given, "", resolved, owners);
    if (!saved) saved = parse_yaml(resolved->text(), resolved->name());
    const Schema* before = catalog.component(catalog.kind_of(section.name),
                                             wanted_component(section, saved->get(section.name)));
    if (before && before->name != owners.back()->name)
      drop_defaults(*given, "", resolved, *before, *owners.back());
  }
}

namespace {

void drop_owned(Node& map, const std::string& path, const Schema& component,
                const Schema& section) {
  std::erase_if(map.entries(), [&](Node::Entry& entry) {
    const std::string child = join_path(path, entry.key);
    if (setting_named(child, {&section})) return false;
    if (setting_named(child, {&component})) return true;
    if (!entry.value.is_map() || !owns({&component}, child, true)) return false;
    drop_owned(entry.value, child, component, section);
    return entry.value.size() == 0;
  });
}

}  // namespace

void drop_component(Node& tree, const std::string& name, const std::string& next,
                    const SchemaCatalog& catalog) {
  const Schema* section = catalog.section(name);
  Node* given = tree.get(name);
  const std::string kind = section ? catalog.kind_of(name) : "";
  if (kind.empty() || !given || !given->is_map() || !catalog.component(kind, next)) return;
  const std::string now = wanted_component(*section, given);
  const Schema* component = catalog.component(kind, now);
  if (component && now != next) drop_owned(*given, "", *component, *section);
}

std::string setting_of_others(std::string_view path, std::string_view written, const Schema& chosen,
                              const SchemaCatalog& catalog) {
  const size_t dot = path.find('.');
  if (dot == std::string_view::npos) return {};
  const std::string section(path.substr(0, dot)), setting(path.substr(dot + 1)),
      kind = catalog.kind_of(section);
  std::vector<std::string> others;
  for (const std::string& name : built_components(catalog, kind)) {
    const std::vector<const Schema*> owner = {catalog.component(kind, name)};
    if (owner[0] != &chosen && (owns(owner, setting, false) || owns(owner, setting, true)))
      others.push_back(name);
  }
  if (others.empty()) return {};
  return cat(section, ".type is ", chosen.name,
             ", which does not have this setting: remove it (on the command line: ~", written,
             "), or choose ", join(others, ", "),
             others.size() == 1 ? ", which has it" : ", which have it");
}

std::string component_as_key(std::string_view path, const SchemaCatalog& catalog) {
  const auto parts = parse_path(path);
  if (!parts || parts->size() < 2) return {};
  const std::string &section = (*parts)[0], &name = (*parts)[1], kind = catalog.kind_of(section);
  if (kind.empty() || !catalog.component(kind, name)) return {};
  for (const Schema* owner :
       catalog.all_owners(section))  // model.moe names a plugin and is also a group of settings
    for (const FieldSpec& spec : owner->fields)
      if (spec.path == name || spec.path.starts_with(name + ".")) return {};
  return cat("write `", section, ": {type: ", name, "}`: its settings go into the same map");
}

}  // namespace mtrain
