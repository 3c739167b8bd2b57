#include "training.h"

#include <csignal>

#include "mtrain/base/log.h"
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

}  // namespace

int run_training(const Cli& cli, const Recipe& recipe, PluginHost& plugins,
                 const std::function<void(const Trainer&)>& before_start) {
  SignalWatch signals;
  std::signal(SIGPIPE, SIG_IGN);  // whoever watches may leave (`| head`); training goes on
  if (cli.quiet) set_log_level(LogLevel::warn);
  make_directories(recipe.run_directory());
  Trainer trainer(recipe, plugins, [&] { return signals.received() != 0; });
  add_observers(trainer, recipe, cli.quiet);
  write_run_folder(recipe, trainer.saved_config());
  if (before_start) before_start(trainer);
  int64_t steps = recipe.settings.train.steps;
  if (trainer.info().first_step >= steps && steps > 0)
    log_info("nothing to do: ", recipe.run_directory().string(), " already has ", trainer.info().first_step,
             " of ", steps, " steps; raise train.steps or choose another run.dir");
  trainer.run();
  return signals.received() != 0 && trainer.state().step < steps ? 128 + signals.received() : 0;
}

}  // namespace mtrain
