// mtrain train: trains from a recipe; `mtrain RECIPE` is short for it.
#include <CLI/CLI.hpp>
#include <iostream>

#include "config_commands.h"
#include "launch.h"
#include "mtrain/comm/launcher.h"
#include "recipe_words.h"
#include "sweeping.h"
#include "training.h"

namespace mtrain {
namespace {

/// Hydra's options that show the configuration instead of training, and that train several times.
struct TrainOptions {
  std::string config, info, package;
  bool resolve = false, multirun = false, keep_going = false;
  int64_t nproc =
      0;  // ranks to start as processes; 0: this process is one rank, or has all ranks as threads
  bool looks() const { return !config.empty() || !info.empty(); }
};

void train(Cli& cli, const RecipeWords& words) {
  PluginHost plugins = plugin_host(cli);
  RecipeRequest request = recipe_request(cli, words);
  request.launched = launched_ranks();
  Recipe recipe = load_recipe(request, plugins);
  warn_of_unused_sweep(recipe);
  if (launched_rank() == 0) print_warnings(recipe);
  cli.status = run_training(cli, recipe, plugins);
}

void launch(Cli& cli, const RecipeWords& words, int64_t nproc) {
  RecipeRequest request = recipe_request(cli, words);
  MT_USER_CHECK(request.recipe != "-", ErrorClass::usage,
                "several processes cannot read the recipe from standard input",
                "write it to a file, or use threads as ranks: dist.nproc=N");
  cli.status = launch_recipe(cli, std::move(request), nproc);
}

void sweep(Cli& cli, const RecipeWords& words, bool keep_going) {
  RecipeRequest request = recipe_request(cli, words);
  request.launched = 1;
  train_sweep(cli, request, keep_going);
}

void look(Cli& cli, const RecipeWords& words, const TrainOptions& options) {
  RecipeRequest request = recipe_request(cli, words);
  const std::string& info = options.info;
  auto wants = [&](const char* what) { return info == what || info == "all"; };
  if (wants("searchpath")) print_searchpath(cli, request.recipe, false);
  if (wants("plugins")) print_plugins(cli);
  if (wants("defaults")) print_tree(cli, request, false, true);
  if (wants("defaults-tree")) print_tree(cli, request, false, false);
  if (!info.empty() && !wants("config")) return;
  ShowOptions show;
  show.view = options.resolve ? ConfigView::resolved : ConfigView::raw;
  show.path = options.package == "_global_" ? "" : options.package;
  print_config(cli, request, show);
}

/// The options that show the configuration.
void add_look_options(CLI::App& command, TrainOptions& options) {
  const char* group =
      "Show the configuration instead of training (Hydra's names; see also `mtrain config`)";
  auto* config =
      command
          .add_option("--cfg,-c", options.config,
                      "print the configuration; job and all are the same (Hydra's names)")
          ->check(CLI::IsMember({"job", "all"}))
          ->type_name("WHAT")
          ->group(group);
  command
      .add_option("--info", options.info,
                  "print one part: config: the settings; defaults: the files in merge order; "
                  "defaults-tree: the tree of defaults lists; plugins; searchpath: the folders of "
                  "recipes; or all of them")
      ->check(
          CLI::IsMember({"all", "config", "defaults", "defaults-tree", "plugins", "searchpath"}))
      ->type_name("WHAT")
      ->excludes(config)
      ->group(group);
  command.add_flag("--resolve", options.resolve, "with --cfg: print every setting with its value")
      ->needs(config)
      ->group(group);
  command
      .add_option("-p,--package", options.package, "with --cfg: print only this section or setting")
      ->type_name("PATH")
      ->needs(config)
      ->group(group);
}

void dispatch(Cli& cli, const RecipeWords& words, const TrainOptions& options) {
  if (options.looks()) {
    const char* option = options.config.empty() ? "--info" : "--cfg";
    MT_USER_CHECK(options.nproc == 0, ErrorClass::usage,
                  cat("--nproc has no effect with ", option, ", which starts no processes"),
                  "leave out --nproc");
    MT_USER_CHECK(
        !options.multirun, ErrorClass::usage,
        cat(option, " shows one configuration, but -m makes several"),
        "list the configurations: mtrain check RECIPE -m --list key=value,value; or leave "
        "out -m and give each setting one value");
    look(cli, words, options);
  } else if (options.nproc > 0 && options.multirun) {
    throw Error(ErrorClass::usage, "--nproc and --multirun cannot be combined",
                "use threads as ranks in a sweep: dist.nproc=N");
  } else if (options.nproc > 0) {
    launch(cli, words, options.nproc);
  } else if (options.multirun) {
    sweep(cli, words, options.keep_going);
  } else {
    train(cli, words);
  }
}

}  // namespace

void add_train_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand(
      "train", "train from a recipe; resumes from the run folder's newest checkpoint");
  auto words = add_recipe_words(*command);
  auto options = std::make_shared<TrainOptions>();
  add_look_options(*command, *options);
  command->add_option("--nproc", options->nproc, "train with this many processes on this machine")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  auto* multirun = command->add_flag("-m,--multirun", options->multirun,
                                     "train once for each combination of the values of a sweep");
  command
      ->add_flag("--keep-going", options->keep_going,
                 "with -m: continue when a trial is invalid or fails")
      ->needs(multirun);
  command->footer(
      "Examples:\n"
      "  mtrain recipes/quickstart.yaml\n"
      "  mtrain --nproc 4 recipes/quickstart.yaml\n"
      "  mtrain recipes/quickstart.yaml -m optimizer.lr=1e-3,2e-3 model.layers=2,4      in "
      "run.dir/0 … run.dir/3\n"
      "  mtrain train recipes/quickstart.yaml optimizer.lr=1e-3 train.steps=200 "
      "run.dir=runs/second\n"
      "  mtrain train recipes/quickstart.yaml --cfg job --resolve -p optimizer\n"
      "Exit status: 0 done, 2 usage, 10 configuration, 11 data, 12 checkpoint, 13 plugin, 14 "
      "numeric fault (NaN or infinity, too many\n"
      "skipped updates, replicas that diverged), 15 a rank died or stopped answering, or a "
      "GPU failed, 18 input/output, 70 a bug in mtrain,\n"
      "129, 130, 138 or 143 stopped by a signal after saving.");
  command->callback([&cli, words, options] { dispatch(cli, *words, *options); });
}

}  // namespace mtrain
