// mtrain rerun: the same run again, from the text that it left behind.
#include <CLI/CLI.hpp>
#include <iostream>

#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/train/dtype_choice.h"
#include "mtrain/train/saved_config.h"
#include "recipe_words.h"
#include "training.h"

namespace mtrain {
namespace {

/// "runs/first-rerun", or with the first number that is free.
fs::path new_folder_beside(const fs::path& run) {
  std::error_code ignored;
  std::string base = cat(fs::canonical(run, ignored).filename().string(), "-rerun");  // `latest` is a link
  for (int i = 1;; ++i) {
    fs::path folder = run.parent_path() / (i == 1 ? base : cat(base, "-", i));
    if (!fs::exists(folder, ignored)) return folder;
  }
}

RecipeRequest rerun_request(const Cli& cli, const RecipeWords& words, const SavedConfig& saved) {
  std::vector<std::string> names;
  RecipeRequest request = sorted_words(cli, words, 1, names);
  SavedIdentity identity = identity_of(saved);
  request.recipe = cat(names[0], " (its recipe)");
  request.text = saved.resolved;
  request.directory = identity.directory.empty() ? fs::current_path() : fs::path(identity.directory);
  // Its own folder, so that nothing of the old run is continued or written over; a user's own choice comes
  // later.
  Location written{std::make_shared<Source>(SourceKind::command_line, "rerun", ""), 0, 0};
  std::vector<OverrideText> own = {
      {cat("run.dir=", override_value_text(Node::string(new_folder_beside(run_of(names[0])).string()))), 0,
       written},
      {"checkpoint.dir=''", 0, written},
      {"checkpoint.resume=auto", 0, written}};
  if (!identity.name.empty())
    own.push_back({cat("run.name=", override_value_text(Node::string(identity.name))), 0, written});
  request.overrides.insert(request.overrides.begin(), own.begin(), own.end());
  return request;
}

void rerun(Cli& cli, const RecipeWords& words) {
  std::vector<std::string> names;
  sorted_words(cli, words, 1, names);
  SavedConfig saved = read_saved_config(names[0]);
  PluginHost plugins = plugin_host(cli);
  Recipe recipe = load_recipe(rerun_request(cli, words, saved), plugins);
  print_warnings(cli, recipe);
  note_kept_dtype(recipe, saved, plugins);
  cli.status = run_training(cli, recipe, plugins, [&](const Trainer& trainer) {
    for (const auto& change : changed_since(saved, trainer.saved_config()))
      log_warn("not as in ", names[0], ": ", change, "; the result may differ");
  });
}

}  // namespace

void add_rerun_command(CLI::App& app, Cli& cli) {
  auto* command =
      app.add_subcommand("rerun", "repeat a run from what its folder or checkpoint says, in a new folder");
  auto words = add_recipe_words(*command, "RUN|CHECKPOINT", "a run's folder, or one of its checkpoints");
  command->footer(
      "The same program, plugins and data give the same losses, bit for bit; differences are reported.\n"
      "Examples:\n"
      "  mtrain rerun runs/quickstart\n"
      "  mtrain rerun runs/quickstart rng.seed=2 run.dir=runs/other-seed");
  command->callback([&cli, words] { rerun(cli, *words); });
}

}  // namespace mtrain
