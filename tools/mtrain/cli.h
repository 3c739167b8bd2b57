// The common part of the command line: what all subcommands share, and their list. Each subcommand
// is in its own cmd_<x>.cc, adds itself to the App, and does its work in its callback, which throws
// mtrain::Error or sets Cli::status. Single-threaded.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "mtrain/plugin/plugin_host.h"

namespace CLI {
class App;
}

namespace mtrain {

struct Cli {
  std::vector<std::string> plugin_path;  // --plugin-path, in order
  bool quiet = false;                    // --quiet: results, warnings and errors only
  std::vector<std::string> words;        // the command line as it was typed, without the program
  int status = 0;  // the exit status, set by a callback that fails without an Error
};

/// A host over the search path of this command line. Loads nothing yet.
PluginHost plugin_host(const Cli& cli);

/// "mtrain: error[config]: message" with a line end: the format of every error.
std::string headline(const char* error_class, const std::string& message);

/// Prints an answer of --json, indented. Invalid UTF-8 in its texts is replaced.
void print_json(const nlohmann::ordered_json& json);

/// Whether something is at the path; false also where that cannot be seen.
bool path_exists(const fs::path& path);

/// The subcommands of a command, without hidden ones.
std::vector<const CLI::App*> visible_commands(const CLI::App& command);

/// Puts `train` before a bare recipe: {"r.yaml", "a=1"} becomes {"train", "r.yaml", "a=1"}. Throws
/// Error(usage) when the first word is neither a command nor like a recipe.
std::vector<std::string> with_default_command(const CLI::App& app,
                                              std::vector<std::string> arguments);

/// Makes every option of these commands take one argument: a repeatable option must be repeated and
/// does not consume the words after its argument.
void limit_to_one_argument(CLI::App& app);

/// Parses, runs the callbacks and turns every failure into one message on standard error and its
/// exit status.
int run_cli(CLI::App& app, Cli& cli, std::vector<std::string> arguments);

/// Checks of an option's value, for CLI::Option::check: empty, or what is wrong. CLI11 itself would
/// read -1 and numbers of more than 64 bits as another count.
std::string check_count(const std::string& text);
/// For every option and argument that names a file or folder to write. Refuses ~/x, which a shell
/// leaves as it is in quotes and in --output=~/x: it would be a folder called "~".
std::string check_output_path(const std::string& path);

void add_train_command(CLI::App& app, Cli& cli);
void add_check_command(CLI::App& app, Cli& cli);
void add_rerun_command(CLI::App& app, Cli& cli);
void add_runs_command(CLI::App& app, Cli& cli);
void add_recipes_command(CLI::App& app, Cli& cli);
void add_completion_command(CLI::App& app, Cli& cli);
void add_bench_command(CLI::App& app, Cli& cli);
void add_eval_command(CLI::App& app, Cli& cli);
void add_generate_command(CLI::App& app, Cli& cli);
void add_export_command(CLI::App& app, Cli& cli);
void add_merge_command(CLI::App& app, Cli& cli);
void add_adapters_command(CLI::App& app, Cli& cli);
void add_import_command(CLI::App& app, Cli& cli);
void add_convert_command(CLI::App& app, Cli& cli);
void add_families_command(CLI::App& app, Cli& cli);
void add_config_command(CLI::App& app, Cli& cli);
void add_schema_command(CLI::App& app, Cli& cli);
void add_data_command(CLI::App& app, Cli& cli);
void add_plugins_command(CLI::App& app, Cli& cli);
void add_doctor_command(CLI::App& app, Cli& cli);
void add_checkpoint_command(CLI::App& app, Cli& cli);
void add_verify_command(CLI::App& app, Cli& cli);
void add_help_command(CLI::App& app, Cli& cli);

}  // namespace mtrain
