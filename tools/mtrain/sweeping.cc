#include "sweeping.h"

#include <iostream>

#include "cli.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text_stream.h"
#include "mtrain/train/recipe_state.h"
#include "mtrain/train/sweep_trials.h"
#include "recipe_words.h"
#include "training.h"

namespace mtrain {
namespace {

std::string title(const SweepTrial& trial) {
  return cat("trial ", trial.request.trial, ": ", trial.label);
}

/// In order with what std::cout holds, and whole where the reader of a pipe is behind.
void print(const std::string& text) {
  std::cout.flush();
  TextStream out(1);
  out.write(text);
  out.flush();
}

/// Validates all trials and tells what is wrong with them; the numbers of the faulty ones.
std::vector<bool> faulty_trials(Cli& cli, const std::vector<SweepTrial>& trials, const PluginHost& plugins,
                                bool list) {
  std::vector<bool> faulty;
  for (const auto& trial : trials) {
    Report report;
    int status = 0;
    try {
      report = read_recipe(trial.request, plugins).report;
      status = report.exit_status();
    } catch (const Error& error) {
      report.error(name(error.error_class()), "", {}, error.message()).fix(error.hint());
      status = error.exit_status();
    }
    faulty.push_back(!report.ok());
    if (list) std::cout << title(trial) << "   " << describe(judge_recipe(report)) << '\n';
    if (report.ok()) continue;
    write_standard_error(cat(title(trial), '\n', headline("config", report.text())));
    if (cli.status == 0) cli.status = status;
  }
  return faulty;
}

int run_trial(const Cli& cli, const SweepTrial& trial, PluginHost& plugins) {
  fs::path folder = load_recipe(trial.request, plugins).run_directory() / std::to_string(trial.request.trial);
  RecipeRequest request = trial.request;
  Location written{std::make_shared<Source>(SourceKind::command_line, "the sweep", ""), 0, 0};
  request.overrides.push_back(
      {cat("run.dir=", override_value_text(Node::string(folder.string()))), 0, written});
  Recipe recipe = load_recipe(request, plugins);
  print_warnings(cli, recipe);
  return run_training(cli, recipe, plugins);
}

}  // namespace

void check_sweep(Cli& cli, const RecipeRequest& request, bool list) {
  PluginHost plugins = plugin_host(cli);
  auto trials = sweep_trials(request, plugins);
  auto faulty = faulty_trials(cli, trials, plugins, list);
  size_t bad = static_cast<size_t>(std::count(faulty.begin(), faulty.end(), true));
  if (!cli.quiet) std::cout << trials.size() << " trials, " << bad << " faulty\n";
}

void train_sweep(Cli& cli, const RecipeRequest& request, bool keep_going) {
  PluginHost plugins = plugin_host(cli);
  auto trials = sweep_trials(request, plugins);
  auto faulty = faulty_trials(cli, trials, plugins, false);
  if (cli.status != 0 && !keep_going) return;
  for (size_t i = 0; i < trials.size(); ++i) {
    if (faulty[i]) continue;
    if (!cli.quiet) print(title(trials[i]) + "\n");
    int status = 0;
    try {
      status = run_trial(cli, trials[i], plugins);
    } catch (const Error& error) {
      if (!keep_going) throw;
      status = error.exit_status();
      write_standard_error(cat(title(trials[i]), '\n', headline(name(error.error_class()), error.what())));
    }
    if (cli.status == 0) cli.status = status;
    if (status > 128 || (status != 0 && !keep_going)) return;  // a signal ends the sweep in any case
  }
}

}  // namespace mtrain
