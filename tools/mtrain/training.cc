#include "training.h"

#include <atomic>
#include <csignal>
#include <mutex>
#include <optional>

#include "mtrain/base/log.h"
#include "mtrain/train/job.h"
#include "mtrain/train/observers/console.h"
#include "mtrain/train/observers/metrics_file.h"
#include "mtrain/train/observers/tensorboard.h"
#include "mtrain/train/run_folder.h"
#include "mtrain/train/signals.h"

namespace mtrain {
namespace {

void add_observers(Trainer& trainer, const Recipe& recipe, bool quiet) {
  const LoggerSection& log = recipe.settings.logger;
  fs::path folder = recipe.run_directory();
  if (!quiet && log.console != "off") {
    ConsoleOptions options;
    options.interval = log.interval;
    if (log.console == "plain") options.mode = ConsoleMode::plain;
    trainer.add_observer(make_console(options));
  }
  if (log.metrics) trainer.add_observer(make_metrics_file(folder / "metrics.jsonl", trainer.state().step));
  if (log.tensorboard) trainer.add_observer(make_tensorboard(folder / "tensorboard"));
}

/// What the first rank does for all.
void start_first(Trainer& trainer, const Recipe& recipe, bool quiet, const std::function<void(const Trainer&)>& before_start) {
  add_observers(trainer, recipe, quiet);
  write_run_folder(recipe, trainer.saved_config());
  if (before_start) before_start(trainer);
  int64_t steps = recipe.settings.train.steps;
  if (trainer.info().first_step >= steps && steps > 0)
    log_info("nothing to do: ", recipe.run_directory().string(), " already has ", trainer.info().first_step,
             " of ", steps, " steps; raise train.steps or choose another run.dir");
}

}  // namespace

int run_training(const Cli& cli, Recipe& recipe, PluginHost& plugins,
                 const std::function<void(const Trainer&)>& before_start) {
  SignalWatch signals;
  std::signal(SIGPIPE, SIG_IGN);  // whoever watches may leave (`| head`); training goes on
  if (cli.quiet) set_log_level(LogLevel::warn);
  make_directories(recipe.run_directory());
  std::mutex building;
  std::atomic<bool> stopped = false;
  run_job(recipe, plugins, [&](Communicator& ranks) {
    RankMesh mesh(recipe, ranks);
    std::optional<Trainer> trainer;
    build_in_turn(ranks, building, [&] { trainer.emplace(recipe, plugins, [&] { return signals.received() != 0; }, mesh); });
    if (ranks.rank() == 0) start_first(*trainer, recipe, cli.quiet, before_start);
    trainer->run();
    if (trainer->state().step < recipe.settings.train.steps) stopped = true;
  });
  if (!stopped) return 0;
  return 128 + (signals.received() != 0 ? signals.received() : SIGTERM);  // where another rank got the signal
}

}  // namespace mtrain
