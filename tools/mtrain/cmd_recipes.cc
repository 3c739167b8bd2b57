// mtrain recipes: lists, copies, creates and verifies recipes.
#include <algorithm>
#include <iostream>

#include "config_commands.h"
#include "mtrain/base/error.h"
#include "mtrain/config/json_write.h"
#include "mtrain/config/yaml_write.h"
#include "mtrain/recipe/new_recipe.h"
#include "mtrain/recipe/recipe_list.h"
#include "mtrain/recipe/recipe_state.h"

namespace mtrain {
namespace {

/// One row of a table of recipes.
struct RecipeRow {
  std::string name, file, description;
  RecipeState state;
  bool group = false, shadowed = false;
};

RecipeState recipe_state(const std::string& file, const PluginHost& plugins,
                         Report* report = nullptr) {
  RecipeRequest request;
  request.recipe = file;
  try {
    Recipe recipe = read_recipe(request, plugins);
    if (report) *report = recipe.report;
    return judge_recipe(recipe.report, recipe.inputs);
  } catch (const Error& error) {
    if (report) report->error("recipe", "", {}, error.message()).fix(error.hint());
    return {.kind = RecipeState::Kind::faulty, .needs = {}, .errors = 1};
  }
}

Node rows_node(const std::vector<RecipeRow>& rows) {
  Node out = Node::list();
  for (const auto& row : rows) {
    Node needs = Node::list();
    for (const auto& part : row.state.needs) needs.push(Node::string(part));
    Node item = make_map({{"name", Node::string(row.name)},
                          {"file", Node::string(row.file)},
                          {"description", Node::string(row.description)},
                          {"shadowed", Node::boolean(row.shadowed)}});
    if (!row.group) {
      item.append("state", {}, Node::string(name(row.state.kind)));
      item.append("needs", {}, std::move(needs));
    }
    out.push(std::move(item));
  }
  return out;
}

size_t characters(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

/// One line for each: the name, the description and the state, in columns.
std::string rows_text(const std::vector<RecipeRow>& rows) {
  constexpr size_t kDescription = 60;  // bytes
  std::vector<std::string> descriptions;
  size_t name_width = 0, description_width = 0;
  for (const auto& row : rows) {
    descriptions.push_back(
        visible(row.description, row.group ? row.description.size() : kDescription));
    name_width = std::max(name_width, characters(row.name));
    if (!row.group)
      description_width = std::max(description_width, characters(descriptions.back()));
  }
  auto column = [](const std::string& text, size_t width) {
    return text +
           std::string(width == 0 ? 0 : std::max(width, characters(text)) + 2 - characters(text),
                       ' ');
  };
  std::string out;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string state = rows[i].group ? "" : describe(rows[i].state);
    if (rows[i].shadowed)
      state +=
          cat(state.empty() ? "" : "; ", "not used: an earlier folder has a recipe of this name");
    std::string line =
        column(rows[i].name, name_width) + column(descriptions[i], description_width) + state;
    line.resize(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out.empty() ? "no recipes; see `mtrain config searchpath`\n" : out;
}

void show_recipes(const Cli& cli, bool groups, bool json) {
  PluginHost plugins = plugin_host(cli);
  std::vector<RecipeRow> rows;
  for (const auto& recipe : list_recipes(search_folders(plugins.folders()))) {
    bool group = !recipe.group.empty();
    if (group && !groups) continue;
    rows.push_back({recipe.name, recipe.file.string(), recipe.description,
                    group ? RecipeState() : recipe_state(recipe.file.string(), plugins), group,
                    recipe.shadowed});
  }
  print_answer(json, rows_node(rows), rows_text(rows));
}

void verify_recipes(Cli& cli, const std::vector<std::string>& files, bool json) {
  PluginHost plugins = plugin_host(cli);
  std::vector<RecipeRow> rows;
  std::vector<std::string> wanted = files;
  if (files.empty())
    for (const auto& recipe : list_recipes(search_folders(plugins.folders())))
      if (recipe.group.empty() && !recipe.shadowed) wanted.push_back(recipe.file.string());
  for (const auto& path_or_name : wanted) {
    Report report;
    std::string file = recipe_file(cli, path_or_name).string();
    rows.push_back({file, file, "", recipe_state(file, plugins, &report)});
    if (rows.back().state.kind != RecipeState::Kind::faulty) continue;
    cli.status = static_cast<int>(ErrorClass::config);
    if (!json) std::cerr << report.text() << '\n';
  }
  print_answer(json, rows_node(rows), rows_text(rows));
}

void add_list(CLI::App& recipes, Cli& cli) {
  auto* command = recipes.add_subcommand(
      "ls", "list the recipes of the search path, and whether each can run here");
  auto groups = std::make_shared<bool>(false);
  command->add_flag("--groups", *groups, "also list the options of groups: optimizer/adamw, …");
  auto json = add_json_flag(*command);
  command->footer("Examples:\n  mtrain recipes ls\n  mtrain recipes ls --groups --json");
  command->callback([&cli, groups, json] { show_recipes(cli, *groups, *json); });
}

void add_cat(CLI::App& recipes, Cli& cli) {
  auto* command = recipes.add_subcommand("cat", "print a recipe's text");
  auto path_or_name = std::make_shared<std::string>();
  command->add_option("recipe", *path_or_name, "a name or a file")->required()->type_name("RECIPE");
  command->footer(
      "Examples:\n  mtrain recipes cat quickstart\n  mtrain config show quickstart   all its "
      "settings");
  command->callback([&cli, path_or_name] {
    std::cout << read_file(recipe_file(cli, *path_or_name), kMaxRecipeBytes);
  });
}

void add_new(CLI::App& recipes, Cli& cli) {
  auto* command = recipes.add_subcommand("new", "write a recipe with all required settings");
  auto file = std::make_shared<std::string>(), model = std::make_shared<std::string>("llama"),
       dataset = std::make_shared<std::string>();
  command->add_option("file", *file, "the new file")
      ->check(check_output_path)
      ->required()
      ->type_name("FILE");
  command->add_option("--model", *model, "the model plugin")
      ->capture_default_str()
      ->type_name("NAME");
  command
      ->add_option("--dataset", *dataset, "the dataset plugin; default: one that suits the model")
      ->type_name("NAME");
  command->footer("Example:\n  mtrain recipes new recipes/mine.yaml --model gpt2 --dataset mock");
  command->callback([&cli, file, model, dataset] {
    create_recipe(cli, *file, new_recipe(schema_catalog(plugin_host(cli)), *model, *dataset));
  });
}

void add_verify(CLI::App& recipes, Cli& cli) {
  auto* command =
      recipes.add_subcommand("verify", "check recipes; default: all recipes of the search path");
  auto files = std::make_shared<std::vector<std::string>>();
  command->add_option("recipes", *files, "names or files")->type_name("RECIPE");
  auto json = add_json_flag(*command);
  command->footer(
      "Exit status: 10 if a recipe is invalid; a recipe that needs features that are not "
      "implemented, or not in this build, is not invalid.\n"
      "Examples:\n  mtrain recipes verify\n  mtrain recipes verify recipes/mine.yaml");
  command->callback([&cli, files, json] { verify_recipes(cli, *files, *json); });
}

}  // namespace

void add_recipes_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("recipes", "list, show, copy, create and verify recipes");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n  mtrain recipes ls\n  mtrain recipes cp quickstart recipes/mine.yaml");
  add_list(*command, cli);
  add_cat(*command, cli);
  add_recipes_copy(*command, cli);
  add_new(*command, cli);
  add_verify(*command, cli);
}

}  // namespace mtrain
