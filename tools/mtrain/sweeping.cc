#include "sweeping.h"

#include <iostream>
#include <optional>

#include "cli.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text_stream.h"
#include "mtrain/launch/dtype_choice.h"
#include "mtrain/recipe/epochs.h"
#include "mtrain/recipe/recipe_state.h"
#include "mtrain/recipe/resume.h"
#include "mtrain/recipe/sweep_trials.h"
#include "mtrain/record/run_ties.h"
#include "recipe_words.h"
#include "sweep_table.h"
#include "training.h"

namespace mtrain {
namespace {

std::string title(const SweepTrial& trial) {
  return cat("trial ", trial.request.trial, ": ", trial.label);
}

/// Writes in order with the contents of std::cout, and completely even if the reader of a pipe is
/// slow.
void print_whole(const std::string& text) {
  std::cout.flush();
  TextStream out(1);
  out.write(text);
  out.flush();
}

/// Validates all trials and reports their errors; returns the numbers of the invalid ones.
std::vector<bool> faulty_trials(Cli& cli, const std::vector<SweepTrial>& trials,
                                const PluginHost& plugins, bool list) {
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

/// Each trial has its own folders, also for checkpoints that a recipe stores elsewhere: else it
/// would continue those of the previous trial.
RecipeRequest trial_request(const SweepTrial& trial, const fs::path& folder,
                            const PluginHost& plugins) {
  RecipeRequest request = trial.request;
  Location written{std::make_shared<Source>(SourceKind::command_line, "the sweep", ""), 0, 0};
  auto place = [&](const char* setting, const fs::path& at) {
    request.overrides.push_back(
        {cat(setting, "=", override_value_text(Node::string(at.string()))), 0, written});
  };
  place("run.dir", folder);
  const CheckpointSection given = load_recipe(trial.request, plugins).settings.checkpoint;
  for (const auto& [setting, path] :
       {std::pair{"checkpoint.dir", given.dir}, {"checkpoint.hf", given.hf}})
    if (!path.empty()) place(setting, fs::path(path) / std::to_string(trial.request.trial));
  return request;
}

/// Two sweeps with one checkpoint.dir would share the checkpoints of their trials:
/// Error(checkpoint).
void require_own_checkpoints_of(const SweepTrial& trial, const Recipe& recipe) {
  try {
    require_own_checkpoints(recipe.run_directory(), recipe.checkpoint_directory());
  } catch (const Error& error) {
    const bool chosen = !recipe.settings.checkpoint.dir.empty();
    throw Error(error.error_class(), cat(title(trial), "\n", error.message()),
                chosen ? "choose another folder for the checkpoints of this sweep: "
                         "checkpoint.dir=ANOTHER/FOLDER; to continue the other sweep, set its "
                         "run.dir"
                       : error.hint());
  }
}

/// A trial whose folder contains a run continues it, so that a stopped sweep can be continued. A
/// run of another configuration must not be continued: Error(checkpoint).
void require_same_trial(const SweepTrial& trial, const fs::path& folder, PluginHost& plugins) {
  Recipe recipe = load_recipe(trial_request(trial, folder, plugins), plugins);
  if (!continues_run(recipe)) return;
  require_own_checkpoints_of(trial, recipe);
  resolve_epochs(recipe, plugins);
  resolve_dtype(recipe, plugins);
  std::vector<std::string> exact = {"train.steps", "rng.seed", "validation.steps"};
  for (const auto& [key, value] : trial.settings) exact.push_back(key);
  exact.insert(exact.end(), trial.paths.begin(), trial.paths.end());
  const std::vector<std::string> changes = changes_of_run(recipe, plugins, exact);
  if (changes.empty()) return;
  throw Error(ErrorClass::checkpoint,
              cat(title(trial), "\n", folder.string(), " holds a run of another configuration:\n  ",
                  join(changes, "\n  ")),
              "choose another folder for this sweep: run.dir=ANOTHER/FOLDER");
}

int run_trial(const Cli& cli, const SweepTrial& trial, const fs::path& folder,
              PluginHost& plugins) {
  Recipe recipe = load_recipe(trial_request(trial, folder, plugins), plugins);
  print_warnings(recipe);
  return run_training(cli, recipe, plugins);
}

/// A running sweep: its trials, their results, and where these are stored.
class SweepRun {
 public:
  SweepRun(Cli& cli, const std::vector<SweepTrial>& trials, const SweepFolders& folders,
           PluginHost& plugins)
      : cli_(cli), trials_(trials), folders_(folders), plugins_(plugins), table_(trials) {}

  void skip(size_t i) { table_[i].outcome = "faulty"; }

  /// Runs a trial and records its result, also if it fails: its status, or the Error with which it
  /// ended.
  int run(size_t i, bool keep_going) {
    const SweepTrial& trial = trials_[i];
    if (!cli_.quiet) print_whole(title(trial) + "\n");
    const fs::path& folder = folders_.of_trials[i];
    auto keep = [&](int status) {
      TrialResult& row = table_[i];
      row.outcome = status == 0 ? "done" : status > 128 ? "stopped" : cat("failed (", status, ")");
      table_.read_metrics(i, folder);
      began_ = true;
      table_.save(folders_.common);
    };
    try {
      int status = run_trial(cli_, trial, folder, plugins_);
      keep(status);
      return status;
    } catch (const Error& error) {
      keep(error.exit_status());
      if (!keep_going) throw;
      write_standard_error(
          cat(title(trial), '\n', headline(name(error.error_class()), error.what())));
      return error.exit_status();
    }
  }

  void print_table() const {
    if (!began_) return;
    print_whole(cli_.quiet ? table_.text()
                           : cat("\n", table_.text(), "kept in ",
                                 (folders_.common / "sweep.csv").string(), "\n"));
  }

 private:
  Cli& cli_;
  const std::vector<SweepTrial>& trials_;
  const SweepFolders& folders_;
  PluginHost& plugins_;
  SweepTable table_;
  bool began_ = false;  // a trial has run
};

}  // namespace

void check_sweep(Cli& cli, const RecipeRequest& request, bool list) {
  PluginHost plugins = plugin_host(cli);
  auto trials = sweep_trials(request, plugins);
  auto faulty = faulty_trials(cli, trials, plugins, list);
  (void)sweep_folders(trials, faulty, plugins);  // throws if they do not fit
  size_t bad = static_cast<size_t>(std::count(faulty.begin(), faulty.end(), true));
  if (!cli.quiet) std::cout << counted(trials.size(), "trial") << ", " << bad << " faulty\n";
}

void train_sweep(Cli& cli, const RecipeRequest& request, bool keep_going) {
  PluginHost plugins = plugin_host(cli);
  auto trials = sweep_trials(request, plugins);
  auto faulty = faulty_trials(cli, trials, plugins, false);
  if (cli.status != 0 && !keep_going) return;
  const SweepFolders folders = sweep_folders(trials, faulty, plugins);
  for (size_t i = 0; i < trials.size(); ++i)
    if (!faulty[i]) require_same_trial(trials[i], folders.of_trials[i], plugins);
  SweepRun sweep(cli, trials, folders, plugins);
  for (size_t i = 0; i < trials.size(); ++i)
    if (faulty[i]) sweep.skip(i);
  try {
    for (size_t i = 0; i < trials.size(); ++i) {
      if (faulty[i]) continue;
      int status = sweep.run(i, keep_going);
      if (cli.status == 0) cli.status = status;
      if (status > 128 || (status != 0 && !keep_going))
        break;  // a signal ends the sweep in any case
    }
  } catch (const Error&) {
    sweep.print_table();
    throw;
  }
  sweep.print_table();
}

}  // namespace mtrain
