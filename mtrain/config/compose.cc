#include "mtrain/config/compose.h"

#include <algorithm>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/defaults_report.h"
#include "mtrain/config/defaults_tree.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxPatches = 10000;

/// Reads the recipe's file: a path, or a name in the search path.
std::optional<std::string> recipe_file(const ComposeRequest& request,
                                       const ConfigRepository& repository, Report& report) {
  std::error_code ignored;
  fs::file_status status = fs::status(request.recipe, ignored);
  if (request.text || request.tree || (fs::exists(status) && !fs::is_directory(status)))
    return request.recipe;
  if (auto found = repository.find(request.recipe)) return found->string();
  if (fs::exists(status)) return request.recipe;
  report.error("file", "", {}, cat("there is no recipe ", visible(request.recipe)))
      .fix(repository.help_for_absent(request.recipe));
  return std::nullopt;
}

/// Merges a file's body into the tree, at its package.
void merge_at(Node& tree, Node body, const std::string& package, const MergeRules& rules) {
  if (package.empty()) return tree.merge(std::move(body), &rules);
  auto parts = split(package, '.');
  for (size_t i = parts.size(); i-- > 0;) {
    Node outer = Node::map().set_location(body.loc());
    Location where = body.loc();
    outer.append(parts[i], where, std::move(body));
    body = std::move(outer);
  }
  tree.merge(std::move(body), &rules);
}

/// True for "optimizer=adamw" where a plugin has that name.
bool names_component(const Override& override, const ComposeRequest& request) {
  if (override.kind == Override::Kind::remove || !override.value || !override.value->is_scalar())
    return false;
  return request.names_component && request.names_component(override.key, *override.value);
}

/// True when an override chooses an option of a config group rather than setting a value.
bool chooses_group(const Override& override, const ConfigRepository& repository,
                   const ComposeRequest& request) {
  std::string_view plain = std::string_view(override.key).substr(0, override.key.find('['));
  std::string group(plain.substr(0, plain.find('@')));
  bool slashed = plain.find_first_of("/@") != std::string_view::npos;
  if (override.edit || (override.value && override.value->is_map())) return false;
  if (override.kind == Override::Kind::remove && !override.value && repository.find(group))
    return true;  // a config
  if (!repository.is_group(group)) return slashed;
  if (override.value && override.value->is_scalar() && !override.value->is_null()) {
    bool option = repository.find(group + "/" + override.value->as_text()).has_value();
    if (!option && names_component(override, request)) return false;
  }
  return true;
}

/// Reports an override of a part of the recipe that is not a setting: defaults, patch, sweep. False
/// for any other override, and for the choice of an option of a config group with that name.
bool is_no_setting(const Override& override, const ConfigRepository& repository,
                   const ComposeRequest& request, Report& report) {
  const std::string part = override.key.substr(0, override.key.find_first_of(".[/@"));
  const char* help =
      part == "defaults" ? "choose options by GROUP=OPTION, add them by +GROUP=OPTION"
      : part == "patch"  ? "give each of its overrides as an argument, KEY=VALUE"
      : part == "sweep"  ? "give each setting of the sweep its own values or one value, "
                           "KEY=VALUE; without -m the recipe's sweep is not used"
                         : nullptr;
  if (!help || (repository.is_group(part) && chooses_group(override, repository, request)))
    return false;
  report
      .error("override", override.key, override.where,
             cat("'", part, ":' of a recipe is not a setting, so an override cannot change it"))
      .fix(help);
  return true;
}

void apply(Composition& out, Override override, const ComposeRequest& request, Report& report) {
  Node& tree = out.tree;
  bool whole_section = override.key.find_first_of(".[") == std::string::npos;
  const Node* type = whole_section && override.value ? override.value->get("type") : nullptr;
  if (type && override.kind != Override::Kind::remove && request.replace_component)
    request.replace_component(tree, override.key, type->as_text());
  if (override.value && request.expand && whole_section) {
    // The short form of a section is a short form on the command line too.
    Node wrapped = Node::map();
    wrapped.append(override.key, override.where, std::move(*override.value));
    request.expand(wrapped);
    override.value = std::move(wrapped.entries()[0].value);
  }
  // scheduler=linear is its type; scheduler=null is an empty section.
  if (whole_section && override.value && !override.value->is_null() &&
      names_component(override, request)) {
    Node section = Node::map().set_location(override.where);
    section.append("type", override.where, std::move(*override.value));
    override.value = std::move(section);
  }
  DefaultOf default_of;
  if (request.default_of)
    default_of = [&](const std::string& path) { return request.default_of(tree, path); };
  NamesOf names_of;
  if (request.names_of)
    names_of = [&](const std::string& path) { return request.names_of(out, path); };
  apply_override(tree, override, report, default_of, names_of);
}

/// The lists `patch: ["k=v", …]` of the merged files, in the order of merging. A list of a later
/// file adds to those before it, so a recipe keeps the patches of the recipes that it includes.
using PatchLists = std::vector<Node>;

/// Removes a file's `patch` from its body. The patches of a file that is merged twice apply once,
/// after those of the files before its last place.
void take_patch(Node& body, PatchLists& lists) {
  Node* list = body.get("patch");
  if (!list) return;
  std::erase_if(lists, [&](const Node& earlier) {
    return earlier.loc() && earlier.loc().source == list->loc().source;
  });
  lists.push_back(std::move(*list));
  body.erase("patch");
}

/// The overrides of the lists, which apply after composition.
std::vector<Override> patches(const PatchLists& lists, Report& report) {
  std::vector<Override> out;
  size_t total = 0;
  for (const Node& list : lists) {
    if (!list.is_list())
      report.error("wrong-type", "patch", list.loc(),
                   "wanted a list of overrides, each a text such as 'k=v'");
    if ((total += list.size()) > kMaxPatches) {
      report.error("yaml-limit", "patch", list.loc(), cat("more than ", kMaxPatches, " patches"));
      return out;
    }
    for (const auto& item : list.items()) {
      if (!item.is(NodeKind::string)) {
        report.error("wrong-type", "patch", item.loc(),
                     cat("wanted an override, a text such as 'k=v', got ", brief(item)));
      } else if (auto override =
                     parse_override({item.as_text(), 0, item.loc(), false, {}}, report)) {
        out.push_back(std::move(*override));
      }
    }
  }
  return out;
}

/// Applies the patches, then the overrides, to the merged files.
void change(Composition& out, const PatchLists& lists, const std::vector<Override>& settings,
            const ConfigRepository& repository, const ComposeRequest& request, Report& report) {
  if (const Node* sweep = out.tree.get("sweep")) {
    out.sweep = *sweep;
    out.tree.erase("sweep");
  }
  out.patches.clear();
  std::vector<Override> patched = patches(lists, report);
  for (const Override& override : patched) out.patches.push_back(override.where);
  for (auto& override : patched) {
    if (is_no_setting(override, repository, request, report)) continue;
    if (chooses_group(override, repository, request) && !names_component(override, request))
      report
          .error("override", override.key, override.where,
                 "a patch changes values, but this one chooses a config")
          .fix(cat("write '- override ", override.key, ": OPTION' in the defaults list"));
    else
      apply(out, std::move(override), request, report);
  }
  for (const auto& override : settings) apply(out, override, request, report);
}

/// True for "mixed_precision: bf16" where mixed_precision is a config group: the recipe chooses an
/// option of it.
bool names_option(const Node::Entry& entry, const ConfigRepository& repository,
                  const ComposeRequest& request) {
  bool name = entry.value.is(NodeKind::string) && !entry.value.is_missing() &&
              entry.value.as_text().find("${") == std::string::npos;
  return name && request.has_presets && request.has_presets(entry.key) &&
         repository.is_group(entry.key);
}

/// Moves such choices of a recipe into its defaults list; they replace an entry of the same group.
ConfigFile with_options_listed(const ConfigFile& recipe, const ConfigRepository& repository,
                               const ComposeRequest& request) {
  ConfigFile out = recipe;
  auto& entries = out.body.entries();
  auto first = std::stable_partition(entries.begin(), entries.end(), [&](const Node::Entry& entry) {
    return !names_option(entry, repository, request);
  });
  if (first == entries.end()) return out;
  Node list = Node::list();
  list.set_location(out.defaults ? out.defaults->loc() : first->key_where);
  if (out.defaults && out.defaults->is_list()) list = *out.defaults;
  for (auto entry = first; entry != entries.end(); ++entry) {
    bool listed = std::any_of(list.items().begin(), list.items().end(),
                              [&](const Node& item) { return item.get(entry->key) != nullptr; });
    Location where = entry->value.loc();
    Node choice = Node::map().set_location(where);
    choice.append(listed ? "override " + entry->key : entry->key, where, std::move(entry->value));
    list.items().insert(listed ? list.items().end() : list.items().begin(), std::move(choice));
  }
  entries.erase(first, entries.end());
  out.defaults = std::move(list);
  return out;
}

}  // namespace

std::optional<Composition> compose(const ComposeRequest& request, Report& report) {
  ConfigRepository by_name(request.search_path);
  auto file = recipe_file(request, by_name, report);
  std::vector<fs::path> with_own = request.search_path;
  if (file) {
    fs::path own = fs::path(*file).parent_path();
    with_own.insert(with_own.begin(), own.empty() ? fs::path(".") : own);
  }
  ConfigRepository repository(with_own);
  const ConfigFile* recipe = !file          ? nullptr
                             : request.tree ? repository.add(*file, *request.tree, report)
                                            : repository.load_file(*file, request.text, report);
  DefaultsTree defaults(repository, report, request);
  std::vector<Override>
      values;  // an override that chooses a group stays only if it turns out to be a value
  std::set<size_t> choices;
  for (const auto& text : request.overrides) {
    auto override = parse_override(text, report, false, request.is_text);
    if (!override || is_no_setting(*override, repository, request, report)) continue;
    if (chooses_group(*override, repository, request)) {
      defaults.choose(*override, names_component(*override, request));
      choices.insert(values.size());
    }
    values.push_back(std::move(*override));
  }
  if (!recipe) return std::nullopt;
  const ConfigFile listed = with_options_listed(*recipe, repository, request);
  recipe = &listed;
  Composition out;
  out.file = *file;
  out.raw = recipe->body.loc().source->text();
  defaults.build(recipe);
  out.choices = defaults.choices();
  out.defaults = defaults.lines();
  const auto files = defaults.files();
  for (const auto& [config, package] : files)
    out.files.push_back({config->path, package, config->file, config->body.loc().source});
  std::vector<Override> settings;
  for (size_t i = 0; i < values.size(); ++i)
    if (!choices.contains(i) || defaults.is_value(values[i].key))
      settings.push_back(std::move(values[i]));
  auto assemble = [&](const MergeRules& rules, Report& faults) {
    out.tree = Node::map().set_location(recipe->body.loc());
    PatchLists lists;
    for (const auto& [config, package] : files) {
      Node body = config->body;
      if (package.empty()) take_patch(body, lists);
      if (request.expand && package.empty()) request.expand(body);
      merge_at(out.tree, std::move(body), package, rules);
    }
    change(out, lists, settings, repository, request, faults);
  };
  // The merge rules depend on the plugins that the recipe names, so the recipe is first merged
  // without rules.
  Report plain;
  assemble({}, plain);
  MergeRules rules = request.merge_rules ? request.merge_rules(out.tree) : MergeRules();
  if (rules.empty())
    report.add(std::move(plain));
  else
    assemble(rules, report);
  warn_of_idle_choices(out, report);
  return out;
}

}  // namespace mtrain
