#include "mtrain/recipe/explain.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/json_write.h"
#include "mtrain/config/schema.h"
#include "mtrain/config/yaml_write.h"
#include "mtrain/recipe/recipe_list.h"
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {
namespace {

struct Owner {
  std::string label;  // "optimizer" for the section itself, "optimizer/adamw" for a plugin's part
  const Schema* schema;
};

std::vector<Owner> owners_of(const std::string& section, const SchemaCatalog& catalog) {
  std::vector<Owner> out;
  for (const Schema* owner : catalog.all_owners(section))
    out.push_back({out.empty() ? section : section + "/" + owner->name, owner});
  return out;
}

Node texts(const std::vector<std::string>& items) {
  Node out = Node::list();
  for (const auto& item : items) out.push(Node::string(item));
  return out;
}

Node describe_field(const Owner& owner, const FieldSpec& spec) {
  Node out = make_map({{"owner", Node::string(owner.label)},
                       {"path", Node::string(spec.path)},
                       {"type", Node::string(name(spec.type))},
                       {"describe", Node::string(describe(spec))},
                       {"doc", Node::string(spec.doc)},
                       {"required", Node::boolean(spec.required)},
                       {"resume", Node::string(name(spec.resume))}});
  auto add = [&](const char* key, Node value) { out.append(key, {}, std::move(value)); };
  if (!spec.required && !spec.default_value.empty())
    add("default", Node::string(spec.default_value));
  if (!spec.unit.empty()) add("unit", Node::string(spec.unit));
  if (!spec.example.empty()) add("example", Node::string(spec.example));
  if (spec.min) add("min", Node::number(*spec.min));
  if (spec.max) add("max", Node::number(*spec.max));
  if (!spec.choices.empty()) add("choices", texts(spec.choices));
  if (!spec.plugin_kind.empty()) add("plugin", Node::string(spec.plugin_kind));
  if (!spec.renamed_from.empty()) add("renamed_from", texts(spec.renamed_from));
  if (!spec.share_of.empty()) add("share_of", Node::string(spec.share_of));
  if (!spec.alternative.empty()) add("alternative", Node::string(spec.alternative));
  if (spec.secret) add("secret", Node::boolean(true));
  const std::string& needs = spec.needs.empty() ? owner.schema->needs : spec.needs;
  if (!needs.empty()) add("needs", Node::string(needs));
  return out;
}

/// The current name of a renamed setting; the path itself otherwise.
std::string present_name(const std::string& path, const std::vector<Owner>& owners) {
  std::string section = path.substr(0, path.find('.')), rest = path.substr(section.size() + 1);
  for (const auto& owner : owners)
    for (const auto& spec : owner.schema->fields)
      for (const auto& old : spec.renamed_from) {
        size_t dot = spec.path.rfind('.');
        if (old == rest || (dot != std::string::npos && spec.path.substr(0, dot + 1) + old == rest))
          return section + "." + spec.path;
      }
  return path;
}

/// Help for a setting that no section has: the probably intended one.
std::string help_for_unknown(const std::string& path, const SchemaCatalog& catalog) {
  KeyIndex index;
  for (const auto& schema : catalog.sections()) {
    index.add(schema.name);
    for (const auto& owner : owners_of(schema.name, catalog))
      index.add_schema(*owner.schema, schema.name);
  }
  auto near = index.suggest(path);
  // A name without section, or a name of another trainer: search every section.
  if (near.empty() && path.find('.') == std::string::npos)
    for (const auto& schema : catalog.sections())
      for (const auto& found : index.suggest(schema.name + "." + path, 1))
        if (std::find(near.begin(), near.end(), found) == near.end() && near.size() < 3)
          near.push_back(found);
  std::vector<std::string> sections;
  for (const auto& schema : catalog.sections()) sections.push_back(schema.name);
  index.set_advisor([&catalog](std::string_view wanted) { return catalog.advice(wanted); });
  const std::string help = index.help(path);
  if (!help.empty()) return help;
  return near.empty() ? "sections: " + join(sections, ", ")
                      : cat("did you mean ", join(near, " or "), "?");
}

[[noreturn]] void unknown(const std::string& path, const SchemaCatalog& catalog) {
  throw Error(ErrorClass::config, cat("there is no setting ", visible(path, 100)),
              help_for_unknown(path, catalog));
}

/// The settings of each owner below a path.
Node section_node(const std::string& path, const std::string& prefix,
                  const std::vector<Owner>& owners) {
  Node sections = Node::list();
  for (const auto& owner : owners) {
    Node fields = Node::list();
    for (const auto& spec : owner.schema->fields)
      if (prefix.empty() || spec.path.starts_with(prefix + "."))
        fields.push(describe_field(owner, spec));
    if (fields.size() > 0)
      sections.push(make_map({{"owner", Node::string(owner.label)},
                              {"doc", Node::string(owner.schema->doc)},
                              {"settings", std::move(fields)}}));
  }
  return make_map({{"path", Node::string(path)}, {"sections", std::move(sections)}});
}

std::string default_text(const Node& setting) {
  if (setting.get("required")->as_bool()) return "required";
  if (!setting.get("default")) return "default none";
  const std::string& value = setting.get("default")->as_text();
  return cat("default ", value.empty() ? "\"\"" : value);
}

std::string section_text(const Node& explained) {
  std::string out;
  for (const auto& section : explained.get("sections")->items()) {
    out += cat(section.get("owner")->as_text(), ": ", section.get("doc")->as_text(), "\n");
    std::string top = section.get("owner")->as_text();
    top = top.substr(0, top.find('/'));
    for (const auto& setting : section.get("settings")->items())
      out += cat("  ", top, ".", setting.get("path")->as_text(), "   ",
                 setting.get("describe")->as_text(), ", ", default_text(setting), "\n      ",
                 setting.get("doc")->as_text(), "\n");
  }
  return out;
}

std::string setting_text(const Node& setting) {
  static const std::pair<const char*, const char*> kResume[] = {
      {"safe", "may be changed when a run continues"},
      {"start", "used only when a run begins; a change when the run continues has no effect"},
      {"coming_steps",
       "a change when a run continues affects the remaining steps; adding a step that is done is "
       "refused"},
      {"changes_result", "a change when a run continues affects the result from then on"},
      {"data", "cannot be changed when a run continues if that changes the samples or their order"},
      {"impossible", "cannot be changed when a run continues"}};
  std::string out;
  auto line = [&](const char* what, const std::string& text) {
    std::string label = what;
    label.resize(12, ' ');
    out += cat("  ", label, text, "\n");
  };
  auto joined = [](const Node& list) {
    std::vector<std::string> items;
    for (const auto& item : list.items()) items.push_back(item.as_text());
    return join(items, ", ");
  };
  out += cat("  ", setting.get("doc")->as_text(), "\n");
  line("type", setting.get("describe")->as_text());
  line("default", setting.get("required")->as_bool()
                      ? "none: a recipe must set it"
                      : default_text(setting).substr(std::string("default ").size()));
  if (const Node* example = setting.get("example")) line("example", example->as_text());
  if (const Node* plugin = setting.get("plugin"))
    line("names", cat("a plugin of the kind ", plugin->as_text()));
  if (const Node* old = setting.get("renamed_from")) line("also called", joined(*old));
  if (const Node* other = setting.get("alternative")) line("instead of", other->as_text());
  if (const Node* needs = setting.get("needs"))
    line("needs", cat(needs->as_text(), ", which mtrain does not implement yet"));
  if (setting.get("secret")) line("secret", "never saved or shown");
  for (const auto& [resume, words] : kResume)
    if (setting.get("resume")->as_text() == resume) line("on resume", words);
  return out;
}

}  // namespace

std::string setting_help(const std::string& path, const Node& root, const SchemaCatalog& catalog) {
  const std::string section = path.substr(0, path.find('.'));
  std::vector<std::string> owners;
  for (const auto& owner : owners_of(section, catalog))
    for (const auto& spec : owner.schema->fields) {
      if (section + "." + spec.path != path) continue;
      owners.push_back(owner.label);
      if (spec.alternative.empty()) continue;
      if (const std::string other = cat(section, ".", spec.alternative); root.find(other))
        return cat("the recipe sets ", other, " instead");
    }
  if (owners.empty()) return help_for_unknown(path, catalog);
  return cat("it belongs to ", join(owners, ", "), ", which the recipe does not use");
}

Node explain_setting(const std::string& asked, const SchemaCatalog& catalog,
                     const std::vector<SearchFolder>& folders) {
  std::string section = asked.substr(0, asked.find('.'));
  auto owners = owners_of(section, catalog);
  if (owners.empty()) unknown(asked, catalog);
  if (asked == section) return section_node(asked, "", owners);
  std::string path = present_name(asked, owners), rest = path.substr(section.size() + 1);
  Node settings = Node::list();
  for (const auto& owner : owners)
    for (const auto& spec : owner.schema->fields)
      if (spec.path == rest) settings.push(describe_field(owner, spec));
  if (settings.size() == 0) {
    Node nested = section_node(path, rest, owners);
    if (nested.get("sections")->size() == 0) unknown(asked, catalog);
    return nested;
  }
  Node users = Node::list();
  for (const auto& use : recipes_using(path, folders))
    users.push(make_map({{"recipe", Node::string(use.name)},
                         {"value", Node::string(use.value)},
                         {"where", Node::string(use.where.text())}}));
  Node rules = Node::list();
  std::string in_rules = path;
  for (const auto& owner : owners)
    for (const auto& spec : owner.schema->fields)
      if (spec.path == rest && spec.fact != Fact::none) in_rules = usual_path(spec.fact);
  for (const Rule* rule : recipe_rules().about(in_rules))
    rules.push(
        make_map({{"id", Node::string(rule->id)},
                  {"when", Node::string(rule->unused ? cat(rule->path, " is set") : rule->when)},
                  {"must", Node::string(rule->must)},
                  {"why", Node::string(rule->why)}}));
  return make_map({{"path", Node::string(path)},
                   {"asked", Node::string(asked)},
                   {"settings", std::move(settings)},
                   {"rules", std::move(rules)},
                   {"recipes", std::move(users)}});
}

std::string explain_text(const Node& explained) {
  if (explained.get("sections")) return section_text(explained);
  const std::string& path = explained.get("path")->as_text();
  std::string out;
  if (path != explained.get("asked")->as_text())
    out += cat(explained.get("asked")->as_text(), " is another name for ", path, "\n");
  for (const auto& setting : explained.get("settings")->items()) {
    const std::string& owner = setting.get("owner")->as_text();
    size_t slash = owner.find('/');
    out += cat(path,
               slash == std::string::npos ? "" : cat("   of the plugin ", owner.substr(slash + 1)),
               "\n", setting_text(setting));
  }
  for (const auto& rule : explained.get("rules")->items()) {
    const std::string& when = rule.get("when")->as_text();
    out += cat("  rule        ", rule.get("id")->as_text(), ": ", rule.get("must")->as_text(),
               when.empty() ? "" : cat("   (when ", when, ")"), "\n");
    if (const std::string& why = rule.get("why")->as_text(); !why.empty())
      out += cat("              ", why, "\n");
  }
  const Node& users = *explained.get("recipes");
  constexpr size_t kShown = 12;
  for (size_t i = 0; i < std::min(users.size(), kShown); ++i)
    out +=
        cat(i == 0 ? "  recipes     " : "              ", users.items()[i].get("recipe")->as_text(),
            ": ", users.items()[i].get("value")->as_text(), "\n");
  if (users.size() > kShown) out += cat("              … and ", users.size() - kShown, " more\n");
  return out;
}

}  // namespace mtrain
