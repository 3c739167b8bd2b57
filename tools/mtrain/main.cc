// mtrain: trains language models from YAML recipes. This file contains only the common options;
// each subcommand is a file of this folder.
#include <CLI/CLI.hpp>
#include <string_view>

#include "cli.h"
#include "completion.h"
#include "help_format.h"
#include "mtrain/base/log.h"
#include "mtrain/plugin/probe.h"
#include "mtrain/recipe/input_paths.h"

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == mtrain::kProbeCommand)
    mtrain::answer_probe(argv[2]);
  mtrain::Cli cli;
  CLI::App app("train language models from YAML recipes", "mtrain");
  app.formatter(mtrain::help_formatter());
  app.set_help_flag("-h,--help", "show this help");
  app.set_version_flag("--version", std::string("mtrain ") + MT_VERSION, "show the version");
  app.require_subcommand(1);
  app.fallthrough();  // the options below may also follow a command
  app.add_option("--plugin-path", cli.plugin_path,
                 "search this folder for plugins first (repeatable)")
      ->type_name("DIR");
  app.add_flag("-q,--quiet", cli.quiet, "print results, warnings and errors only");
  app.parse_complete_callback([&cli] {  // before the callback of the command
    if (cli.quiet) mtrain::set_log_level(mtrain::LogLevel::warn);
  });
  app.footer(
      "Examples:\n"
      "  mtrain recipes/quickstart.yaml                 train (the same as: mtrain train "
      "recipes/quickstart.yaml)\n"
      "  mtrain recipes/quickstart.yaml train.steps=50  train with one setting changed\n"
      "  mtrain --nproc 4 recipes/quickstart.yaml       train with four processes (see `mtrain "
      "help "
      "train`)\n"
      "  mtrain plugins ls                              list the models, tokenizers, datasets and "
      "optimizers\n"
      "  mtrain doctor                                  check this machine\n"
      "Run `mtrain help COMMAND` for the options of a command.\n" +
      std::string(mtrain::kPathRule));

  mtrain::add_train_command(app, cli);
  mtrain::add_check_command(app, cli);
  mtrain::add_rerun_command(app, cli);
  mtrain::add_runs_command(app, cli);
  mtrain::add_bench_command(app, cli);
  mtrain::add_eval_command(app, cli);
  mtrain::add_generate_command(app, cli);
  mtrain::add_import_command(app, cli);
  mtrain::add_export_command(app, cli);
  mtrain::add_merge_command(app, cli);
  mtrain::add_adapters_command(app, cli);
  mtrain::add_convert_command(app, cli);
  mtrain::add_families_command(app, cli);
  mtrain::add_config_command(app, cli);
  mtrain::add_recipes_command(app, cli);
  mtrain::add_schema_command(app, cli);
  mtrain::add_data_command(app, cli);
  mtrain::add_plugins_command(app, cli);
  mtrain::add_doctor_command(app, cli);
  mtrain::add_checkpoint_command(app, cli);
  mtrain::add_verify_command(app, cli);
  mtrain::add_completion_command(app, cli);
  mtrain::add_help_command(app, cli);
  mtrain::limit_to_one_argument(app);

  std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words.front() == "__complete")
    return mtrain::answer_completion(app, cli, {words.begin() + 1, words.end()});
  return mtrain::run_cli(app, cli, std::move(words));
}
