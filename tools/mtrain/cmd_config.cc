// mtrain config: shows a recipe's settings, the origin of each value, and the available settings.
// Runs no plugin code; only `migrate --write` writes a file.
#include <iostream>

#include "config_commands.h"
#include "mtrain/base/error.h"
#include "mtrain/config/json_write.h"
#include "mtrain/config/provenance.h"
#include "mtrain/recipe/explain.h"
#include "mtrain/recipe/recipe_schema.h"

namespace mtrain {
namespace {

CLI::Option* add_view(CLI::App& command, ShowOptions& options, const char* flag, ConfigView view,
                      const char* doc) {
  return command.add_flag_callback(
      flag, [&options, view] { options.view = view; }, doc);
}

/// One view and one format; annotations are comments, which only YAML has.
void add_show_options(CLI::App& command, ShowOptions& options) {
  CLI::Option* const views[] = {
      add_view(command, options, "--resolved", ConfigView::resolved,
               "every setting with its value (the default)"),
      add_view(command, options, "--raw", ConfigView::raw,
               "only what the recipe and the overrides set, with expressions as written"),
      add_view(command, options, "--minimal", ConfigView::minimal,
               "only settings that differ from their defaults"),
      add_view(command, options, "--annotated", ConfigView::annotated,
               "every setting, with its origin and meaning")};
  auto* json = command.add_flag_callback(
      "--json", [&options] { options.format = ConfigFormat::json; }, "print as JSON");
  auto* flags = command.add_flag_callback(
      "--flags", [&options] { options.format = ConfigFormat::flags; },
      "print one key=value per line");
  flags->excludes(json);
  for (CLI::Option* view : views)
    for (CLI::Option* other : views)
      if (other != view) view->excludes(other);
  for (CLI::Option* format : {json, flags}) format->excludes("--annotated");
}

/// True if the recipe has a setting of this path. If not: false for a recipe with reported errors,
/// which may have left it out; else throws Error(config) with the nearest setting.
bool require_setting(const Recipe& recipe, const std::string& key, const PluginHost& plugins) {
  const Node& root = recipe.config.root();
  if (key.empty() || root.find(key)) return true;
  const SchemaCatalog catalog = schema_catalog(plugins);
  const std::string section = key.substr(0, key.find('.'));
  const bool exists =
      catalog.section(section) && !catalog.settings_at(key, recipe.config.type_of(section)).empty();
  if (!recipe.report.ok() && exists) return false;
  throw Error(
      ErrorClass::config,
      cat("no setting ", printable(key, 100), root.loc() ? " in " + root.loc().source->name() : ""),
      setting_help(key, root, catalog));
}

/// The origin of a setting, or of those of a section, when the run started.
std::string saved_origins(const SavedConfig& saved, const std::string& key) {
  std::string out;
  for (const auto& [path, origin] : origins_of(saved))
    if (path == key || path.starts_with(key + "."))
      out += cat("when the run started: ", path, " was set by ", origin, '\n');
  return out;
}

}  // namespace

std::shared_ptr<bool> add_json_flag(CLI::App& command) {
  auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "print as JSON");
  return json;
}

void print_answer(bool json, const Node& answer, const std::string& text) {
  std::cout << (json ? write_json(answer) + "\n" : text);
}

void print_config(Cli& cli, const RecipeRequest& request, const ShowOptions& options) {
  PluginHost plugins = plugin_host(cli);
  Recipe recipe = inspect_recipe(cli, request, plugins);
  if (!require_setting(recipe, options.path, plugins)) return;
  make_input_paths_absolute(recipe, plugins);
  std::cout << show_config(recipe.config, schema_catalog(plugins), options);
}

void add_config_show(CLI::App& config, Cli& cli) {
  auto* command =
      config.add_subcommand("show", "print a recipe's settings, or one section or setting of it");
  auto options = std::make_shared<ShowOptions>();
  auto words = add_recipe_words(*command, "[PATH] RECIPE|RUN",
                                cat("PATH: a section or setting; RECIPE|RUN: ", kRecipeOrRun));
  add_show_options(*command, *options);
  command->footer(
      "Examples:\n"
      "  mtrain config show recipes/quickstart.yaml\n"
      "  mtrain config show optimizer recipes/quickstart.yaml optimizer.lr=1e-3 --annotated\n"
      "  mtrain config show recipes/quickstart.yaml --minimal --flags\n"
      "  mtrain config show runs/quickstart optimizer");
  command->callback([&cli, words, options] {
    RecipeRequest request = recipe_request(cli, *words, plugin_host(cli), options->path);
    open_run(cli, request);
    print_config(cli, request, *options);
  });
}

void add_config_why(CLI::App& config, Cli& cli) {
  auto* command = config.add_subcommand(
      "why", "show where a setting was set, how it was computed, and which values it replaced");
  auto words = add_recipe_words(*command, "KEY RECIPE|RUN",
                                cat("KEY: a setting or section; RECIPE|RUN: ", kRecipeOrRun));
  auto json = add_json_flag(*command);
  command->footer(
      "Examples:\n"
      "  mtrain config why optimizer.lr recipes/quickstart.yaml optimizer.lr=1e-3\n"
      "  mtrain config why optimizer recipes/quickstart.yaml --json");
  command->callback([&cli, words, json] {
    PluginHost plugins = plugin_host(cli);
    std::string key;
    RecipeRequest request = recipe_request(cli, *words, plugins, key);
    std::optional<SavedConfig> saved = open_run(cli, request);
    Recipe recipe = inspect_recipe(cli, request, plugins);
    if (!require_setting(recipe, key, plugins)) return;
    if (*json)
      print_answer(true, key.empty() ? provenance(recipe.config) : why_node(recipe.config, key),
                   "");
    else if (key.empty())
      for (const auto& entry : recipe.config.root().entries())
        std::cout << why_text(recipe.config, entry.key);
    else
      std::cout << why_text(recipe.config, key) << (saved ? saved_origins(*saved, key) : "");
  });
}

void add_config_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("config", "show, explain and compare configurations");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  mtrain config show recipes/quickstart.yaml --minimal\n"
      "  mtrain config why optimizer.lr recipes/quickstart.yaml\n"
      "  mtrain config explain optimizer.lr\n"
      "  mtrain config diff runs/first runs/second");
  add_config_show(*command, cli);
  add_config_why(*command, cli);
  add_config_explain(*command, cli);
  add_config_diff(*command, cli);
  add_config_tree(*command, cli);
  add_config_searchpath(*command, cli);
  add_config_migrate(*command, cli);
  add_schema_command(*command, cli);
  command->get_subcommand("schema")->description(
      "the same as `mtrain schema`: print all settings, including those of plugins");
}

}  // namespace mtrain
