// mtrain train: the command that a bare recipe stands for.
#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>

#include "cli.h"
#include "mtrain/base/log.h"
#include "mtrain/train/observers/console.h"
#include "mtrain/train/observers/metrics_file.h"
#include "mtrain/train/observers/tensorboard.h"
#include "mtrain/train/run_folder.h"
#include "mtrain/train/signals.h"
#include "mtrain/train/trainer.h"
#include "recipe_words.h"

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

int train(const Cli& cli, const RecipeWords& words) {
  SignalWatch signals;
  std::signal(SIGPIPE, SIG_IGN);  // whoever watches may leave (`| head`); training goes on
  if (cli.quiet) set_log_level(LogLevel::warn);
  PluginHost plugins = plugin_host(cli);
  Recipe recipe = load_recipe(recipe_request(cli, words), plugins);
  print_warnings(cli, recipe);
  make_directories(recipe.run_directory());
  Trainer trainer(recipe, plugins, [&] { return signals.received() != 0; });
  add_observers(trainer, recipe, cli.quiet);
  write_run_folder(recipe, plugins);
  int64_t steps = recipe.settings.train.steps;
  if (trainer.info().first_step >= steps && steps > 0)
    log_info("nothing to do: ", recipe.run_directory().string(), " already has ", trainer.info().first_step,
             " of ", steps, " steps; raise train.steps or choose another run.dir");
  trainer.run();
  return signals.received() != 0 && trainer.state().step < steps ? 128 + signals.received() : 0;
}

}  // namespace

void add_train_command(CLI::App& app, Cli& cli) {
  auto* command =
      app.add_subcommand("train", "train from a recipe; continues the run folder's newest checkpoint");
  auto words = add_recipe_words(*command);
  command->footer(
      "Examples:\n"
      "  mtrain recipes/quickstart.yaml\n"
      "  mtrain train recipes/quickstart.yaml optimizer.lr=1e-3 train.steps=200 run.dir=runs/second\n"
      "Exit status: 0 done, 10 configuration, 11 data, 12 checkpoint, 13 plugin, 14 not a finite number, 18 "
      "input/output,\n"
      "130 or 143 stopped by a signal after saving.");
  command->callback([&cli, words] { cli.status = train(cli, *words); });
}

}  // namespace mtrain
