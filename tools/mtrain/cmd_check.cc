// mtrain check: is this recipe right? Runs no plugin code and writes nothing.
#include <CLI/CLI.hpp>
#include <iostream>

#include "cli.h"
#include "recipe_words.h"

namespace mtrain {
namespace {

void check(const Cli& cli, const RecipeWords& words, bool resolved) {
  PluginHost plugins = plugin_host(cli);
  Recipe recipe = load_recipe(recipe_request(cli, words), plugins);
  print_warnings(cli, recipe);
  if (resolved) {
    std::cout << recipe.config.to_yaml();
    return;
  }
  if (cli.quiet) return;
  const Settings& s = recipe.settings;
  std::cout << recipe.config.composition().file << ": ok\n"
            << "  model " << s.model.type << ", tokenizer " << s.tokenizer.type << ", dataset "
            << s.dataset.type << ", optimizer " << s.optimizer.type << ", " << s.mixed_precision.dtype << '\n'
            << "  " << s.train.steps << " steps of " << s.global_batch() << " x " << s.model.seq_length
            << " tokens = "
            << human_count(static_cast<double>(s.train.steps * s.global_batch() * s.model.seq_length))
            << " tokens, " << s.micro_batches() << " micro-batch" << (s.micro_batches() == 1 ? "" : "es")
            << " per step\n"
            << "  run folder " << recipe.run_directory().string() << '\n';
}

}  // namespace

void add_check_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("check", "check a recipe: every fault at once, with its place and fix");
  auto words = add_recipe_words(*command);
  auto resolved = std::make_shared<bool>(false);
  command->add_flag("--resolved", *resolved, "print every setting with its value, as YAML");
  command->footer(
      "Examples:\n"
      "  mtrain check recipes/quickstart.yaml\n"
      "  mtrain check recipes/quickstart.yaml model.layers=8 --resolved");
  command->callback([&cli, words, resolved] { check(cli, *words, *resolved); });
}

}  // namespace mtrain
