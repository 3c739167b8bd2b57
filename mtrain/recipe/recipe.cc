#include "mtrain/recipe/recipe.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>

#include "mtrain/base/checked.h"
#include "mtrain/base/error.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/comm/launcher.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/plugin/sidecar.h"
#include "mtrain/recipe/epochs.h"
#include "mtrain/recipe/foreign_names.h"
#include "mtrain/recipe/hf_config.h"
#include "mtrain/recipe/hf_source.h"
#include "mtrain/recipe/pipeline_plan.h"
#include "mtrain/recipe/planned.h"
#include "mtrain/recipe/resolvers.h"
#include "mtrain/recipe/rules/rules.h"
#include "mtrain/recipe/search_path.h"
#include "mtrain/record/saved_config.h"
#include "mtrain/record/saved_step.h"

namespace mtrain {
namespace {

constexpr size_t kMaxInput = size_t{1} << 20;  // bytes of a recipe on standard input

// Numbers arguments as in `mtrain RECIPE k=v …`: the recipe is argument 1.
std::vector<OverrideText> numbered(const std::vector<std::string>& overrides) {
  std::vector<OverrideText> out;
  for (const auto& text : overrides) out.push_back({text, static_cast<int>(out.size()) + 2});
  return out;
}

bool same_number(const Node& a, const Node& b) {
  auto numeric = [](const Node& n) { return n.is(NodeKind::integer) || n.is(NodeKind::number); };
  return numeric(a) && numeric(b) && a.as_double() == b.as_double();
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

/// Reads config.json of model.init_from for the recipe's model.
HfFolderConfig read_folder(const Recipe& recipe, const SchemaCatalog& catalog,
                           const PluginHost& plugins, const Source& file) {
  const Node& root = recipe.config.root();
  const HfFamilies families = HfFamilies::read(plugins.folders());
  HfTarget target{.families = families,
                  .plugin = root.find("model.type")->as_text(),
                  .schemas = {catalog.section("model")},
                  .schema_of = model_schemas(catalog)};
  if (const Schema* model = catalog.component("model", target.plugin))
    target.schemas.push_back(model);
  const Node* length = root.find("model.seq_length");
  if (length && length->is(NodeKind::integer)) target.seq_length = length->as_int();
  if (const Node* ignored = root.find("model.init_ignore"); ignored && ignored->is_list())
    for (const Node& key : ignored->items())
      if (key.is_scalar()) target.ignored.push_back(key.as_text());
  return read_hf_config(file.text(), file.name(), target);
}

/// The location of a key such as "rope_scaling.factor" in config.json; the whole file if the key is
/// absent.
Location place_of_key(const SourcePtr& file, const std::string& key) {
  const std::string& text = file->text();
  size_t at = 0;
  for (const std::string& part : split(key, '.')) {
    const std::string quoted = cat('"', part, '"');
    for (;; ++at) {
      at = text.find(quoted, at);
      if (at == std::string::npos) return {file, 0, 0};
      const size_t next = text.find_first_not_of(" \t\r\n", at + quoted.size());
      if (next != std::string::npos && text[next] == ':') break;
    }
  }
  return locate(file, at);
}

/// The model settings of a saved run, for the recipe's model. Settings that affect neither shapes
/// nor the meaning of weights are marked, since the recipe may change them.
std::vector<HfSetting> settings_of_run(const Recipe& recipe, const SchemaCatalog& catalog,
                                       const Source& saved) {
  const Node theirs = parse_yaml(saved.text(), saved.name());
  const Node& ours = recipe.config.root();
  std::vector<HfSetting> out;
  auto add = [&](const std::string& path, bool may_differ) {
    const Node *there = theirs.find(path), *here = ours.find(path);
    if (!there || !here || brief(*there) == brief(*here)) return;
    const bool computed =
        brief(*there) == "0" ||
        brief(*here) == "0";  // such as kv_heads: 0 stands for a value that may be equal
    out.push_back({.path = path,
                   .theirs = path,
                   .value = *there,
                   .training = may_differ || computed,
                   .warns = may_differ && !computed});
  };
  constexpr const char* kType = "model.type";
  add(kType, false);
  if (!out.empty()) return out;
  for (const Schema* owner : catalog.owners("model", ours.find(kType)->as_text()))
    for (const FieldSpec& spec : owner->fields) {
      const bool fixed = spec.resume == ResumeClass::impossible;
      if (fixed ||
          (owner != catalog.section("model") && spec.resume == ResumeClass::changes_result))
        add("model." + spec.path, !fixed);
    }
  return out;
}

/// The file that describes the model of the weights of model.init_from.
SourcePtr description_of_weights(const Recipe& recipe, const fs::path& folder) {
  return with_path_origins(recipe.inputs, [&] {
    if (is_saved_run(folder))
      return std::make_shared<const Source>(SourceKind::file, folder.string(),
                                            read_saved_config(folder).resolved);
    const HfDir weights(folder);  // or one file of it
    return std::make_shared<const Source>(SourceKind::file,
                                          (plain_path(weights.path()) / "config.json").string(),
                                          weights.config_text());
  });
}

constexpr const char* kInitIgnore = "model.init_ignore";

/// Warns of model.init_ignore where no config.json is read. `why`: what model.init_from is.
void warn_of_unused_ignore(Recipe& recipe, const char* why) {
  const Node* ignored = recipe.config.root().find(kInitIgnore);
  if (ignored && ignored->is_list() && ignored->size() > 0)
    recipe.report.warning("init-ignore", kInitIgnore, ignored->loc(),
                          cat("it has no effect: it names keys of config.json of a Hugging Face "
                              "folder, and model.init_from ",
                              why));
}

/// Warns of keys in model.init_ignore that config.json does not have.
void note_absent_keys(const Recipe& recipe, const HfFolderConfig& config, const Source& file,
                      Report& report) {
  if (config.absent.empty()) return;
  report.warning("init-ignore", kInitIgnore, recipe.config.root().at(kInitIgnore).loc(),
                 cat(file.name(), " does not have ", printable(join(config.absent, ", "), 200),
                     ", so ignoring it has no effect"));
}

bool is_set(const Node& setting) {
  return setting.loc() && setting.loc().source->kind() != SourceKind::built_in;
}

bool same_setting(const Node& a, const Node& b) {
  return brief(a) == brief(b) || (a.is_scalar() && same_number(a, b));
}

/// Whether one list of blocks is the other one, repeated; the last repetition may be incomplete.
bool same_pattern(const Node& a, const Node& b) {
  if (!a.is_list() || !b.is_list() || a.size() == 0 || b.size() == 0) return false;
  const Node &shorter = a.size() < b.size() ? a : b, &longer = a.size() < b.size() ? b : a;
  for (size_t i = 0; i < longer.size(); ++i)
    if (!same_setting(longer.items()[i], shorter.items()[i % shorter.size()])) return false;
  return true;
}

/// Reports a setting of the recipe whose value is not that of the weights' model. `file`: what says
/// so. `implied`: HfFolderConfig::implied.
void judge_setting(const HfSetting& theirs, const Node& ours, const std::string& file,
                   Report& report, bool implied = false) {
  if (same_setting(ours, theirs.value)) return;
  if (!theirs.same_as.is_null() && same_setting(ours, theirs.same_as)) return;
  if (theirs.repeats && same_pattern(ours, theirs.value)) return;
  if (theirs.warns)
    report.warning("init-from", theirs.path, ours.loc(),
                   cat(brief(ours), " differs from ", file, ", whose weights were trained with ",
                       brief(theirs.value)));
  if (theirs.training) return;
  const std::string leave = cat("leave ", theirs.path, " out, or set it to ", brief(theirs.value));
  report
      .error("init-from", theirs.path, ours.loc(),
             cat(brief(ours), " differs from ", file,
                 theirs.theirs.empty() ? std::string(", whose model_type means ")
                 : theirs.omitted      ? cat(", which omits ", theirs.theirs,
                                             ", so its default in transformers applies: ")
                                       : cat(", where ", theirs.theirs, " is "),
                 brief(theirs.value)))
      .fix(implied ? cat(leave, "; to compute another function than the folder's all the same: ",
                         "model.init_ignore=[", theirs.path.substr(theirs.path.find('.') + 1), "]")
                   : leave);
}

// Applies the settings of the model of model.init_from to settings that the recipe does not set. A
// different value in the recipe is an error, except for settings that only training uses. A feature
// that the model plugin does not support is an error, or a warning if only training uses it.
void apply_weight_settings(ConfigRequest request, const SchemaCatalog& catalog,
                           const PluginHost& plugins, Recipe& recipe) {
  const Node* from = recipe.config.root().find("model.init_from");
  const Node* type = recipe.config.root().find("model.type");
  if (!from || from->as_text().empty() || !type) return warn_of_unused_ignore(recipe, "is not set");
  fs::path folder = recipe.resolve(from->as_text());
  Report differing;
  try {
    const SourcePtr file = description_of_weights(recipe, folder);
    const std::string& name = file->name();
    const HfFolderConfig config =
        is_saved_run(folder) ? HfFolderConfig{settings_of_run(recipe, catalog, *file), {}, {}}
                             : read_folder(recipe, catalog, plugins, *file);
    note_absent_keys(recipe, config, *file, differing);
    for (const auto& refusal : config.refused)
      differing.error("hf-config", "model.init_from", place_of_key(file, refusal.key), refusal.what)
          .fix(refusal.fix);
    if (!config.dropouts.empty())
      differing.warning("hf-dropout", "model.init_from", from->loc(),
                        cat(name, " has ", join(config.dropouts, ", "), ", which the model plugin ",
                            type->as_text(), " does not support: training continues without"));
    for (const HfSetting& setting : config.settings) {
      const Node* ours = recipe.config.root().find(setting.path);
      if (ours && !is_set(*ours))
        request.overrides.push_back(
            {.text = cat("++", setting.path, "=", override_value_text(setting.value)),
             .written = Location{file, 0, 0},
             .given = false});
      else if (ours)
        judge_setting(setting, *ours, name, differing);
    }
    // The plugin's defaults are these values, so there is nothing to set.
    for (const HfSetting& setting : config.implied)
      if (const Node* ours = recipe.config.root().find(setting.path); ours && is_set(*ours))
        judge_setting(setting, *ours, name, differing, true);
  } catch (const Error&) {
    if (recipe.report.ok()) throw;
    return;  // the recipe's own faults are reported first
  }
  load_config(request, catalog, plugins, recipe);
  recipe.report.add(std::move(differing));
  if (is_saved_run(folder)) warn_of_unused_ignore(recipe, "is a run of mtrain");
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
  cluster.trains = wanted.launched > 0 || (wanted.any_ranks && is_set_at("dist.nproc"));
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
  if (wanted.any_ranks && !cluster.trains && cluster.world_size == 0)
    cluster.world_size = least_ranks(recipe);
  recipe.ranks = cluster.world_size > 0        ? cluster.world_size
                 : cluster.trains || nproc > 1 ? nproc
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
  return {.seq_length = recipe.settings.model.seq_length,
          .seed = static_cast<uint64_t>(recipe.settings.rng.seed),
          .base_directory = recipe.directory,
          .tokenizer = tokenizer};
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
  apply_weight_settings(request, catalog, plugins, recipe);
  read_settings(recipe.config, recipe.settings);
  if (wanted.any_ranks) recipe.settings.planned_ranks = recipe.ranks;
  check_length(recipe);
  check_rules(recipe.config, catalog, cluster, recipe.report, true, wanted.resolved);
  check_hf_export(recipe, catalog, plugins);
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
                      .directory = directory,
                      .overrides = numbered(overrides),
                      .cluster = {}},
                     plugins);
}

}  // namespace mtrain
