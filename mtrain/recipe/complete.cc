#include "mtrain/recipe/complete.h"

#include <algorithm>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/config/interpolate.h"
#include "mtrain/config/repository.h"
#include "mtrain/config/schema.h"
#include "mtrain/recipe/recipe_list.h"

namespace mtrain {
namespace {

bool is_run(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "config" / "resolved.yaml", ignored) ||
         fs::is_directory(folder / "checkpoints", ignored) ||
         fs::exists(folder / "manifest.json", ignored);
}

void keep_matching(std::vector<Candidate>& list, const std::string& typed) {
  std::set<std::string> seen;
  std::erase_if(list, [&](const Candidate& c) {
    return !c.text.starts_with(typed) || !seen.insert(c.text).second;
  });
}

/// The sign before an override's key: "+", "++" or "~".
std::string sign_of(const std::string& typed) {
  for (const char* sign : {"++", "+", "~"})
    if (typed.starts_with(sign)) return sign;
  return "";
}

/// Adds the components of a kind that are implemented, each after the text `before`.
void add_component_candidates(const std::string& before, const std::string& kind,
                              const SchemaCatalog& catalog, std::vector<Candidate>& out) {
  for (const auto& name : catalog.components(kind))
    if (const Schema& component = *catalog.component(kind, name); component.needs.empty())
      out.push_back({before + name, component.doc});
}

/// Whether this build supports a value of a setting.
bool is_value_built(const FieldSpec& spec, const std::string& value) {
  if (spec.needs.empty()) return true;
  if (spec.needs_values.empty()) return value == spec.default_value;
  return std::find(spec.needs_values.begin(), spec.needs_values.end(), value) ==
         spec.needs_values.end();
}

/// Adds the possible values of one setting.
void add_values(const FieldSpec& spec, const std::string& key, const SchemaCatalog& catalog,
                std::vector<Candidate>& out) {
  std::vector<std::string> values = spec.choices;
  if (spec.type == FieldType::boolean) values = {"true", "false"};
  for (const auto& value : values)
    if (is_value_built(spec, value)) out.push_back({key + value, ""});
  if (!spec.plugin_kind.empty()) add_component_candidates(key, spec.plugin_kind, catalog, out);
  if (!spec.example.empty()) out.push_back({key + spec.example, "e.g."});
}

/// Adds the settings below a section, one level at a time.
void add_keys(const std::string& typed, const std::vector<const Schema*>& schemas,
              const std::string& suffix, std::vector<Candidate>& out) {
  std::string section = typed.substr(0, typed.find('.') + 1), rest = typed.substr(section.size());
  for (const Schema* schema : schemas)
    for (const auto& spec : schema->fields) {
      if (!spec.path.starts_with(rest)) continue;
      size_t dot = spec.path.find('.', rest.size());
      if (dot == std::string::npos)
        out.push_back({section + spec.path + suffix, spec.doc});
      else
        out.push_back(
            {section + spec.path.substr(0, dot + 1), "settings of " + spec.path.substr(0, dot)});
    }
}

/// Adds what may follow `section=`: options of a group that the recipe's defaults lists contain, or
/// that "+" adds; without a recipe, all options; components and other values of `type`.
void add_choices(const std::string& sign, const std::string& section,
                 const ConfigRepository& repository, const SchemaCatalog& catalog,
                 const std::optional<Recipe>& recipe, std::vector<Candidate>& out) {
  const std::string kind = catalog.kind_of(section), before = sign + section + "=";
  const bool listed = recipe && recipe->config.composition().choices.contains(section);
  if (listed || !recipe || sign == "+")
    for (const auto& option : repository.options(section))
      if (const Schema* component = catalog.component(kind, option);
          !component || component->needs.empty())
        out.push_back({before + option, ""});
  add_component_candidates(before, kind, catalog, out);
  const Schema* schema = kind.empty() && sign != "+" ? catalog.section(section) : nullptr;
  for (const auto& spec : schema ? schema->fields : std::vector<FieldSpec>())
    if (spec.path == "type")
      for (const auto& value : spec.choices)
        if (is_value_built(spec, value)) out.push_back({before + value, ""});
}

/// The recipe on the command line, if it can be read.
std::optional<Recipe> recipe_of(const std::string& path_or_name, const PluginHost& plugins) {
  if (path_or_name.empty() || path_or_name == "-") return std::nullopt;
  RecipeRequest request;
  request.recipe = path_or_name;
  try {
    Recipe recipe = read_recipe(request, plugins);
    if (recipe.config.root().is_map()) return recipe;
  } catch (const Error&) {
    // Faults are reported when the recipe is used.
  }
  return std::nullopt;
}

}  // namespace

std::vector<Candidate> complete_entries(const std::string& typed, const AcceptEntry& accept) {
  constexpr size_t kMostCandidates = 1000;
  std::string folder = typed.substr(0, typed.rfind('/') + 1), leaf = typed.substr(folder.size());
  std::vector<Candidate> out;
  std::error_code fault;
  for (fs::directory_iterator it(folder.empty() ? fs::path(".") : fs::path(folder), fault), end;
       !fault && it != end && out.size() < kMostCandidates; it.increment(fault)) {
    std::string name = it->path().filename().string();
    if (!name.starts_with(leaf) || (name.starts_with('.') && !leaf.starts_with('.'))) continue;
    if (auto candidate = accept(*it, folder + name)) out.push_back(std::move(*candidate));
  }
  std::sort(out.begin(), out.end(),
            [](const Candidate& a, const Candidate& b) { return a.text < b.text; });
  return out;
}

std::vector<Candidate> complete_file(const std::string& typed, const std::string& extension) {
  return complete_entries(
      typed, [&](const fs::directory_entry& entry, std::string path) -> std::optional<Candidate> {
        std::error_code ignored;
        if (entry.is_directory(ignored)) return Candidate{path + "/", "folder"};
        if (entry.path().extension() != extension) return std::nullopt;
        return Candidate{std::move(path), ""};
      });
}

std::vector<Candidate> complete_run(const std::string& typed) {
  auto out = complete_entries(
      typed, [&](const fs::directory_entry& entry, std::string path) -> std::optional<Candidate> {
        std::error_code ignored;
        if (!entry.is_directory(ignored)) return std::nullopt;
        bool run = is_run(entry.path());
        return Candidate{run ? path : path + "/", run ? "run or checkpoint" : "folder"};
      });
  // Most runs are in runs/.
  if (typed.find('/') == std::string::npos && typed != "runs") {
    auto more = complete_run("runs/");
    out.insert(out.begin(), more.begin(), more.end());
    keep_matching(out, typed);
  }
  return out;
}

std::vector<Candidate> complete_recipe(const std::string& typed,
                                       const std::vector<SearchFolder>& folders) {
  std::vector<Candidate> out;
  for (const auto& recipe : list_recipes(folders))
    if (recipe.group.empty() || typed.find('/') != std::string::npos)
      out.push_back({recipe.name, recipe.description});
  keep_matching(out, typed);
  auto files = complete_file(typed, ".yaml");
  out.insert(out.end(), files.begin(), files.end());
  keep_matching(out, typed);
  return out;
}

std::vector<Candidate> complete_key(const std::string& typed, const SchemaCatalog& catalog) {
  std::vector<Candidate> out;
  if (typed.find('.') == std::string::npos)
    for (const auto& section : catalog.sections()) out.push_back({section.name + ".", section.doc});
  else
    add_keys(typed, catalog.all_owners(typed.substr(0, typed.find('.'))), "", out);
  keep_matching(out, typed);
  return out;
}

std::vector<Candidate> complete_override(const std::string& typed, const std::string& recipe,
                                         const PluginHost& plugins) {
  SchemaCatalog catalog = schema_catalog(plugins);
  std::vector<fs::path> folders;
  if (!recipe.empty()) folders.push_back(fs::path(recipe).parent_path());
  for (const auto& folder : search_folders(plugins.folders())) folders.push_back(folder.path);
  ConfigRepository repository(folders);
  std::string sign = sign_of(typed), key = typed.substr(sign.size(), typed.find('=') - sign.size());
  std::string suffix = sign == "~" ? "" : "=";
  std::vector<Candidate> out;
  const auto known = recipe_of(recipe, plugins);
  if (typed.find('=') == std::string::npos && key.find('.') == std::string::npos) {
    for (const auto& section : catalog.sections()) {
      out.push_back({sign + section.name + ".", section.doc});
      std::vector<Candidate> choices;
      add_choices(sign, section.name, repository, catalog, known, choices);
      if (!choices.empty())
        out.push_back({sign + section.name + suffix, "choose one: " + section.doc});
    }
  } else {
    std::string section = key.substr(0, key.find('.'));
    bool has_section = known && catalog.section(section);
    std::string component = has_section ? known->config.type_of(section) : "";
    if (typed.find('=') == std::string::npos) {
      add_keys(key,
               component.empty() ? catalog.all_owners(section) : catalog.owners(section, component),
               suffix, out);
      for (auto& candidate : out) candidate.text = sign + candidate.text;
    } else if (key.find('.') == std::string::npos) {
      add_choices(sign, key, repository, catalog, known, out);
    } else {
      std::string before = sign + key + "=";
      const Node* now = known ? known->config.root().find(key) : nullptr;
      if (now && !now->is_map() && !any_confidential(*now) && !known->config.is_secret(key))
        out.push_back({before + override_value_text(*now), "as it is"});
      for (const FieldSpec* spec : catalog.settings_at(key, component))
        add_values(*spec, before, catalog, out);
    }
  }
  keep_matching(out, typed);
  return out;
}

}  // namespace mtrain
