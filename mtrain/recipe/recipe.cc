#include "mtrain/recipe/recipe.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>

#include "mtrain/base/checked.h"
#include "mtrain/base/error.h"
#include "mtrain/comm/launcher.h"
#include "mtrain/config/read_items.h"
#include "mtrain/optim/param_rates.h"
#include "mtrain/plugin/sidecar.h"
#include "mtrain/recipe/epochs.h"
#include "mtrain/recipe/foreign_names.h"
#include "mtrain/recipe/hf_source.h"
#include "mtrain/recipe/pipeline_plan.h"
#include "mtrain/recipe/planned.h"
#include "mtrain/recipe/resolvers.h"
#include "mtrain/recipe/rules/rules.h"
#include "mtrain/recipe/search_path.h"
#include "mtrain/recipe/teacher.h"
#include "mtrain/recipe/weight_settings.h"

namespace mtrain {
namespace {

constexpr size_t kMaxInput = size_t{1} << 20;  // bytes of a recipe on standard input

// Numbers arguments as in `mtrain RECIPE k=v …`: the recipe is argument 1.
std::vector<OverrideText> numbered(const std::vector<std::string>& overrides) {
  std::vector<OverrideText> out;
  for (const auto& text : overrides) out.push_back({text, static_cast<int>(out.size()) + 2});
  return out;
}

PathBases bases_of(const Recipe& recipe, const PluginHost& plugins) {
  return {recipe.config.composition().file, recipe.directory, search_folders(plugins.folders())};
}

/// Reads and checks the configuration, and finds the files that it names.
void load_config(const ConfigRequest& request, const SchemaCatalog& catalog,
                 const PluginHost& plugins, Recipe& recipe) {
  recipe.report = Report();
  recipe.config = ConfigContainer::load(request, catalog, recipe.report);
  if (!recipe.config.root().is_map()) return;
  recipe.inputs = resolve_input_paths(recipe.config, catalog, bases_of(recipe, plugins));
}

/// An integer setting of the recipe; 1 if it is invalid.
int64_t number_at(const Recipe& recipe, const char* path) {
  const Node* node = recipe.config.root().find(path);
  return node && node->is(NodeKind::integer) ? node->as_int() : 1;
}

/// The smallest number of ranks for the layout; 0: more than the maximum.
int64_t least_ranks(const Recipe& recipe) {
  auto product = [&](std::initializer_list<const char*> paths) {
    Checked<int64_t> out = 1;
    for (const char* path : paths) out = out * number_at(recipe, path);
    return out.valid() ? std::clamp<int64_t>(out.value(), 0, int64_t{1} << 31) : 0;
  };
  return std::lcm(product({"dist.tp", "dist.pp", "dist.cp", "dist.hsdp"}),
                  product({"dist.etp", "dist.ep", "dist.pp"}));
}

// Applies the number of ranks: sets dist.nproc if a launcher determined it, and the value of
// ${world_size:}. `asked`: a value of the recipe uses ${world_size:}. Returns the cluster for the
// rules.
Cluster apply_ranks(ConfigRequest& request, const RecipeRequest& wanted,
                    const SchemaCatalog& catalog, const PluginHost& plugins, const bool& asked,
                    Recipe& recipe) {
  bool again = false;
  auto is_set_at = [&](const char* path) {
    const Node* node = recipe.config.root().find(path);
    return node && is_set(*node);
  };
  Cluster cluster = wanted.cluster;
  cluster.starts_run = wanted.launched > 0 || (wanted.any_ranks && is_set_at("dist.nproc"));
  if (wanted.launched > 1) {
    Location written{std::make_shared<Source>(SourceKind::command_line, "the launcher", ""), 0, 0};
    for (const auto& [path, value] :
         {std::pair{"dist.nproc", cat(wanted.launched)}, {"dist.comm", host_comm()}}) {
      if (is_set_at(path)) continue;
      request.overrides.push_back({cat("++", path, "=", value), 0, written});
      again = true;
    }
  }
  const int64_t nproc = wanted.launched > 1 && !is_set_at("dist.nproc")
                            ? wanted.launched
                            : number_at(recipe, "dist.nproc");
  if (wanted.any_ranks && !cluster.starts_run && cluster.world_size == 0)
    cluster.world_size = least_ranks(recipe);
  recipe.ranks = cluster.world_size > 0            ? cluster.world_size
                 : cluster.starts_run || nproc > 1 ? nproc
                                                   : 0;
  if (wanted.cluster.world_size == 0 && recipe.ranks > 1 && asked) {
    Cluster all = cluster;
    all.world_size = recipe.ranks;
    add_resolvers(request, {recipe.name, recipe.directory, all, wanted.trial});
    again = true;
  }
  if (again) load_config(request, catalog, plugins, recipe);
  return cluster;
}

// Fills the core's settings. Invalid ones, which are already reported, keep their defaults.
void read_settings(const ConfigContainer& config, Settings& settings) {
  Settings::each(settings, [&](const char* section, const char*, const char*, auto& part) {
    Fields fields;
    part.bind(fields);
    try {
      read_fields(config.section(section), fields);
    } catch (const Error& faulty) {
      if (faulty.error_class() != ErrorClass::config) throw;
    }
  });
}

/// Reads and simulates the schedule file, so that its faults are reported with those of the recipe.
void check_schedule_file(Recipe& recipe) {
  constexpr const char* kSetting = "dist.schedule_file";
  if (!recipe.report.ok() || recipe.settings.dist.pp == 1 ||
      recipe.settings.dist.schedule_file.empty())
    return;
  try {
    (void)pipeline_plan(recipe);
  } catch (const Error& faulty) {
    const Node* node = recipe.config.root().find(kSetting);
    recipe.report
        .error("schedule-file", kSetting, node ? node->loc() : Location{}, faulty.message())
        .fix(faulty.hint());
  }
}

/// Reports the faults of settings that are lists of maps.
void check_item_lists(Recipe& recipe) {
  read_items<ParamGroup>(recipe.settings.optimizer.groups, "optimizer.groups", recipe.report);
  read_items<ScheduleStage>(recipe.settings.scheduler.stages, "scheduler.stages", recipe.report);
}

/// Reports paths such as run.dir=~/a, and returns true if there are any: a shell replaces ~ only at
/// the start of a word, so this would be a folder called "~".
bool has_home_paths(Recipe& recipe) {
  bool found = false;
  auto check = [&](const std::string& setting, const std::string& given, const Location& where) {
    if (given != "~" && !given.starts_with("~/")) return;
    found = true;
    const char* home = std::getenv("HOME");
    recipe.report
        .error("home-path", setting, where,
               cat("'", printable(given), "' is a folder called ~, not the home folder"))
        .fix(home ? cat(setting, "=", home, given.substr(1)) : "write the absolute path");
  };
  for (const InputPath& input : recipe.inputs) check(input.setting, input.given, input.where);
  for (const char* setting : {"run.dir", "checkpoint.dir", "checkpoint.hf"})
    if (const Node* node = recipe.config.root().find(setting);
        node && node->kind() == NodeKind::string)
      check(setting, node->as_text(), node->loc());
  return found;
}

std::string standard_input() {
  std::string text(kMaxInput + 1, '\0');
  std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::cin.gcount()));
  MT_USER_CHECK(text.size() <= kMaxInput, ErrorClass::config,
                "the recipe on standard input is longer than 1 MiB", "check that this is a recipe");
  return text;
}

// Finds the recipe, its name, and the folder to which its paths are relative.
ConfigRequest located(const RecipeRequest& wanted, const PluginHost& plugins, Recipe& recipe) {
  ConfigRequest request{.recipe = wanted.recipe,
                        .text = wanted.text,
                        .resolved = wanted.resolved,
                        .overrides = wanted.overrides};
  std::vector<SearchFolder> folders = search_folders(plugins.folders());
  for (const auto& folder : folders) request.search_path.push_back(folder.path);
  recipe.directory = wanted.directory.empty() ? fs::current_path() : wanted.directory;
  recipe.name = wanted.recipe;
  if (wanted.text) return request;
  if (wanted.recipe == "-") {
    request.recipe = recipe.name = "stdin";
    request.text = standard_input();
    recipe.directory = fs::current_path();
  } else {
    auto found = find_recipe(wanted.recipe, folders);
    fs::path file = fs::absolute(found ? found->file : fs::path(wanted.recipe));
    if (found) request.recipe = found->file.string();
    recipe.directory =
        is_installed(file, folders) ? fs::current_path() : file.parent_path();  // input_paths.h
    recipe.name = file.stem().string();
  }
  return request;
}

}  // namespace

const Node& Recipe::component(std::string_view section) const { return config.component(section); }

fs::path Recipe::resolve(const std::string& path) const {
  return fs::path(path).is_absolute() ? fs::path(path) : directory / path;
}

fs::path Recipe::run_directory() const {
  return settings.run.dir.empty() ? fs::path("runs") / name : fs::path(settings.run.dir);
}

fs::path Recipe::checkpoint_directory() const {
  return settings.checkpoint.dir.empty() ? run_directory() / "checkpoints"
                                         : fs::path(settings.checkpoint.dir);
}

void make_input_paths_absolute(Recipe& recipe, const PluginHost& plugins) {
  if (recipe.config.root().is_map())
    make_input_paths_absolute(recipe.config, schema_catalog(plugins), bases_of(recipe, plugins));
}

DatasetContext dataset_context(const Recipe& recipe, const Tokenizer* tokenizer) {
  auto number = [&](const char* setting, int64_t otherwise) {
    const Node* node = recipe.config.root().find(setting);
    return node && node->is(NodeKind::integer) ? node->as_int() : otherwise;
  };
  const Node* of = recipe.config.root().find("model.labels_of");
  const int64_t labels = number("model.labels", 0), start = number("model.decoder_start_token", -1);
  const Node* path = recipe.config.root().find("tokenizer.path");
  return {.seq_length = recipe.settings.model.seq_length,
          .seed = static_cast<uint64_t>(recipe.settings.rng.seed),
          .base_directory = recipe.directory,
          .tokenizer = tokenizer,
          .labels = labels,
          .labels_of_tokens = labels > 0 && of && of->as_text() == "token",
          .decoder_start = start >= 0 ? std::optional(static_cast<int32_t>(start)) : std::nullopt,
          .tokenizer_path = path && path->is(NodeKind::string) && !path->as_text().empty()
                                ? recipe.resolve(path->as_text()).string()
                                : std::string()};
}

SchemaCatalog schema_catalog(const PluginHost& plugins) {
  SchemaCatalog catalog;
  Settings defaults;
  Settings::each(defaults, [&](const char* name, const char* doc, const char*, auto& part) {
    Fields fields;
    part.bind(fields);
    Schema schema{name, doc, {}, {}};
    for (const auto& field : fields.fields()) schema.fields.push_back(field.spec);
    catalog.add_section(std::move(schema));
  });
  add_components(plugins, catalog);
  add_planned(catalog);
  catalog.set_advisor(foreign_name_help);
  catalog.set_component_advisor(
      [folders = plugins.folders()](std::string_view kind, std::string_view name) {
        if (kind != "model") return std::string();
        SchemaCatalog installed;
        add_components(PluginHost(folders), installed);
        return foreign_model_help(name, HfFamilies::read(folders), model_schemas(installed));
      });
  return catalog;
}

Recipe read_recipe(const RecipeRequest& wanted, const PluginHost& plugins) {
  Recipe recipe;
  ConfigRequest request = located(wanted, plugins, recipe);
  add_resolvers(request, {recipe.name, recipe.directory, wanted.cluster, wanted.trial});
  auto asked = std::make_shared<bool>(false);
  auto& world_size = request.resolvers["world_size"];
  world_size = [asked, answer = world_size](const auto& arguments) {
    *asked = true;
    return answer(arguments);
  };
  SchemaCatalog catalog = schema_catalog(plugins);
  load_config(request, catalog, plugins, recipe);
  if (!recipe.config.root().is_map()) return recipe;
  const Cluster cluster = apply_ranks(request, wanted, catalog, plugins, *asked, recipe);
  if (has_home_paths(recipe)) return recipe;  // before files are read
  if (wanted.weights)
    apply_weight_settings(request, catalog, plugins, recipe,
                          [&](const ConfigRequest& with_weights) {
                            load_config(with_weights, catalog, plugins, recipe);
                          });
  read_settings(recipe.config, recipe.settings);
  if (wanted.any_ranks) recipe.settings.planned_ranks = recipe.ranks;
  check_item_lists(recipe);
  check_length(recipe);
  check_rules(recipe.config, catalog, cluster, recipe.report, true, wanted.resolved);
  check_hf_export(recipe, catalog, plugins);
  if (wanted.weights && !wanted.resolved) check_teacher(recipe, plugins);  // a saved run needs none
  recipe.config.add_shadows(recipe.report);
  check_schedule_file(recipe);
  const Node* named = recipe.config.root().find("run.name");
  // All files of a run contain its name, so a name that is computed from a secret is not used.
  if (!recipe.settings.run.name.empty() && !(named && named->confidential()))
    recipe.name = recipe.settings.run.name;
  return recipe;
}

Recipe load_recipe(const RecipeRequest& request, const PluginHost& plugins) {
  Recipe recipe = read_recipe(request, plugins);
  recipe.report.throw_if_errors();
  return recipe;
}

Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides,
                   const PluginHost& plugins) {
  return load_recipe({.recipe = path,
                      .text = {},
                      .directory = {},
                      .overrides = numbered(overrides),
                      .cluster = {}},
                     plugins);
}

Recipe recipe_from_text(const std::string& text, const std::string& source_name,
                        const fs::path& directory, const std::vector<std::string>& overrides,
                        const PluginHost& plugins) {
  return load_recipe({.recipe = source_name,
                      .text = text,
                      .weights = false,
                      .directory = directory,
                      .overrides = numbered(overrides),
                      .cluster = {}},
                     plugins);
}

}  // namespace mtrain
