#include "training.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <mutex>
#include <optional>

#include "caught_error.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/comm/launcher.h"
#include "mtrain/launch/job.h"
#include "mtrain/train/observers/console.h"
#include "mtrain/train/observers/generations_file.h"
#include "mtrain/train/observers/metrics_file.h"
#include "mtrain/train/observers/tensorboard.h"
#include "mtrain/train/run_folder.h"
#include "mtrain/train/signals.h"
#include "mtrain/train/teacher_pass.h"

namespace mtrain {
namespace {

/// Whether the checkpoint from which the run resumes already has all steps, or is the one in which
/// the run has ended before them.
bool nothing_to_do(const Trainer& trainer, const Recipe& recipe) {
  const int64_t steps = recipe.settings.train.steps;
  return steps > 0 && (trainer.info().first_step >= steps || trainer.out_of_patience());
}

void add_observers(Trainer& trainer, const Recipe& recipe, bool quiet) {
  const LoggerSection& log = recipe.settings.logger;
  fs::path folder = recipe.run_directory();
  if (!quiet && !nothing_to_do(trainer, recipe) && log.console != "off") {
    ConsoleOptions options;
    options.interval = log.interval;
    if (log.console == "plain") options.mode = ConsoleMode::plain;
    trainer.add_observer(make_console(options));
  }
  if (log.metrics)
    trainer.add_observer(make_metrics_file(folder / "metrics.jsonl", trainer.state().step));
  if (!recipe.settings.validation.prompts.empty())
    trainer.add_observer(make_generations_file(folder / "generations.jsonl", trainer.state().step));
  if (log.tensorboard) trainer.add_observer(make_tensorboard(folder / "tensorboard"));
}

/// What only the first rank does.
void start_first(Trainer& trainer, const Recipe& recipe, bool quiet,
                 const std::function<void(const Trainer&)>& before_start) {
  add_observers(trainer, recipe, quiet);
  if (before_start && !nothing_to_do(trainer, recipe)) before_start(trainer);
  for (const auto& input : recipe.inputs)
    if (input.shared && !quiet)
      log_info(input.setting, ": there is no ", input.given,
               " here; training reads the text that comes with mtrain, ", input.result.string(),
               "\n  to use your own text: mtrain data prepare --input TEXT --output ",
               shell_word(input.given), " --tokenizer byte --append-eod --split-on blank-lines");
  if (nothing_to_do(trainer, recipe))
    log_info("nothing to do: ", recipe.run_directory().string(), " already has ",
             trainer.info().first_step, " of ", counted(recipe.settings.train.steps, "step"),
             trainer.out_of_patience()
                 ? "; its validation loss had stopped falling: raise validation.patience, set it "
                   "to 0, or choose another run.dir"
                 : "; raise train.steps or choose another run.dir");
}

/// The current exception as the end of a run after `step` steps.
RunFailure failure_at(int64_t step) {
  const CaughtError error = caught_error();
  return {step, error.status, error.message.substr(0, error.message.find('\n'))};
}

}  // namespace

int run_training(const Cli& cli, Recipe& recipe, PluginHost& plugins,
                 const TrainingOptions& options) {
  SignalWatch signals(launched_rank() == 0 ? SignalWatch::Notice::checkpoint
                                           : SignalWatch::Notice::nothing);
  // The reader of the output may exit (`| head`); training continues.
  std::signal(SIGPIPE, SIG_IGN);
  if (const int64_t tasks = unconnected_tasks(); tasks > 1)
    log_warn("srun started ", tasks,
             " tasks, but each trains on its own: set MASTER_ADDR to the first task's machine to "
             "train one job with all of them");
  NewRunFolders folders(recipe);
  std::mutex building;
  // The recipe says train.steps once the job has begun.
  auto last = [&] {
    return std::min(recipe.settings.train.steps, options.until.value_or(INT64_MAX));
  };
  std::atomic<bool> stopped = false;
  run_job(
      recipe, plugins,
      [&](Communicator& ranks) {
        RankMesh mesh(recipe, ranks);
        const bool first = ranks.rank() == 0;
        std::optional<RunLock> lock;  // declared before the trainer, so that it is released last
        if (first) lock = lock_run_folder(recipe);
        std::optional<Trainer> trainer;
        if (!first && ranks.kind() != "thread") folders.keep();  // they belong to the first process
        std::optional<Invocation> invocation;
        auto begin = [&] {  // all that is needed for a step is there, but for its samples
          if (!first || invocation) return;
          invocation =
              write_run_folder(recipe, trainer->saved_config(), trainer->info().first_step);
        };
        auto keep_steps = [&] {  // a run without a step leaves no folder
          if (invocation && trainer->state().step > trainer->info().first_step) folders.keep();
        };
        auto stop = [&] {
          keep_steps();
          const bool wanted = signals.received() != 0 || trainer->state().step >= last();
          if (!wanted) begin();
          return wanted;
        };
        // Before the student takes memory. The distributions may be in the run's folder, and are
        // kept if the run fails later.
        if (!store_teacher(recipe, plugins, ranks, building,
                           {.stop = [&] { return signals.received() != 0; },
                            .begins = [&] { folders.keep(); }})) {
          stopped = true;
          return;
        }
        build_in_turn(ranks, building, [&] { trainer.emplace(recipe, plugins, stop, mesh); });
        trainer->set_interrupt([&] { return signals.received() != 0; });
        if (first) start_first(*trainer, recipe, cli.quiet, options.before_start);
        try {
          trainer->run();
        } catch (...) {
          keep_steps();
          if (invocation) fail_invocation(*invocation, failure_at(trainer->state().step));
          throw;
        }
        keep_steps();
        if (recipe.settings.train.steps == 0 && trainer->state().step == 0) {
          begin();
          if (first) folders.keep();
        }
        if (invocation) end_invocation(*invocation, trainer->state().step);
        if (trainer->state().step >= last() || trainer->timed_out() || trainer->out_of_patience())
          return;
        stopped = true;
        if (first && signals.received() == 0)
          log_warn("stopped after step ", trainer->state().step, ": another rank got a signal");
      },
      [&] { folders.remove(); });
  if (!stopped) return 0;
  return 128 + (signals.received() != 0 ? signals.received()
                                        : SIGTERM);  // if another rank got the signal
}

}  // namespace mtrain
