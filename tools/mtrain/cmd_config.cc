// mtrain config: what a recipe says, where each value comes from, and what could be said. Runs no plugin
// code, writes nothing but what `migrate --write` is asked to.
#include <iostream>

#include "config_commands.h"
#include "mtrain/config/json_write.h"
#include "mtrain/config/provenance.h"
#include "mtrain/train/recipe_schema.h"

namespace mtrain {
namespace {

const std::map<std::string, ConfigFormat> kFormats = {
    {"yaml", ConfigFormat::yaml}, {"json", ConfigFormat::json}, {"flags", ConfigFormat::flags}};

void add_view(CLI::App& command, ShowOptions& options, const char* flag, ConfigView view, const char* doc) {
  command.add_flag_callback(
      flag, [&options, view] { options.view = view; }, doc);
}

}  // namespace

std::shared_ptr<bool> add_json_format(CLI::App& command) {
  auto json = std::make_shared<bool>(false);
  command
      .add_option_function<std::string>(
          "--format", [json](const std::string& format) { *json = format == "json"; }, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("FORMAT");
  return json;
}

void print_answer(bool json, const Node& answer, const std::string& text) {
  std::cout << (json ? write_json(answer) + "\n" : text);
}

void print_config(Cli& cli, const RecipeRequest& request, const ShowOptions& options) {
  PluginHost plugins = plugin_host(cli);
  Recipe recipe = inspect_recipe(cli, request, plugins);
  std::cout << show_config(recipe.config, schema_catalog(plugins), options);
}

void add_config_show(CLI::App& config, Cli& cli) {
  auto* command = config.add_subcommand("show", "print a recipe's settings, or one section or setting of it");
  auto options = std::make_shared<ShowOptions>();
  auto words = add_recipe_words(*command, "[PATH] RECIPE");
  add_view(*command, *options, "--resolved", ConfigView::resolved,
           "every setting with its value (the default)");
  add_view(*command, *options, "--raw", ConfigView::raw,
           "what recipe and overrides say, expressions as written");
  add_view(*command, *options, "--minimal", ConfigView::minimal, "what differs from the defaults");
  add_view(*command, *options, "--annotated", ConfigView::annotated,
           "every setting, with its origin and meaning");
  auto format = std::make_shared<std::string>("yaml");
  command->add_option("--format", *format, "yaml, json or flags (one key=value a line)")
      ->check(CLI::IsMember({"yaml", "json", "flags"}))
      ->type_name("FORMAT");
  command->footer(
      "Examples:\n"
      "  mtrain config show recipes/quickstart.yaml\n"
      "  mtrain config show optimizer recipes/quickstart.yaml optimizer.lr=1e-3 --annotated\n"
      "  mtrain config show recipes/quickstart.yaml --minimal --format flags");
  command->callback([&cli, words, options, format] {
    options->format = kFormats.at(*format);
    RecipeRequest request = recipe_request(cli, *words, plugin_host(cli), options->path);
    print_config(cli, request, *options);
  });
}

void add_config_why(CLI::App& config, Cli& cli) {
  auto* command =
      config.add_subcommand("why", "show who set a setting, from what, and which values that replaced");
  auto words = add_recipe_words(*command, "KEY RECIPE");
  auto json = add_json_format(*command);
  command->footer(
      "Examples:\n"
      "  mtrain config why optimizer.lr recipes/quickstart.yaml optimizer.lr=1e-3\n"
      "  mtrain config why optimizer recipes/quickstart.yaml --format json");
  command->callback([&cli, words, json] {
    PluginHost plugins = plugin_host(cli);
    std::string key;
    Recipe recipe = inspect_recipe(cli, recipe_request(cli, *words, plugins, key), plugins);
    if (*json)
      print_answer(true, key.empty() ? provenance(recipe.config) : why_node(recipe.config, key), "");
    else if (key.empty())
      for (const auto& entry : recipe.config.root().entries())
        std::cout << why_text(recipe.config, entry.key);
    else
      std::cout << why_text(recipe.config, key);
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
}

}  // namespace mtrain
