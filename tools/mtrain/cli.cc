#include "cli.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>

#include "caught_error.h"
#include "help_format.h"
#include "last_words.h"
#include "launch.h"
#include "mtrain/base/errno_hint.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/text.h"
#include "mtrain/base/text_stream.h"
#include "mtrain/comm/launcher.h"
#include "mtrain/recipe/search_path.h"
#include "option_hints.h"
#include "recipe_words.h"

namespace mtrain {
namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* command : visible_commands(app)) names.push_back(command->get_name());
  return names;
}

bool is_command(const CLI::App& app, const std::string& word) {
  auto commands =
      app.get_subcommands([&](const CLI::App* command) { return command->get_name() == word; });
  return !commands.empty();
}

/// The number of words of this option of the program, including itself. Throws Error(usage) for an
/// option that does not exist.
size_t words_of_option(const CLI::App& app, const std::string& word,
                       const std::vector<std::string>& arguments) {
  std::string option_name = word.substr(0, word.find('='));
  const auto* option = app.get_option_no_throw(option_name);
  if (!option && is_command(app, "train"))
    option = app.get_subcommand("train")->get_option_no_throw(option_name);
  if (!option && word.starts_with("--") && word.size() > 2) {
    std::vector<std::string> names;
    for (const auto* known : app.get_options()) names.push_back(known->get_name());
    const std::string setting = setting_for_option(word, arguments, PluginHost(plugin_folders({})));
    std::vector<std::string> near = nearest(option_name, names, 1);
    throw Error(ErrorClass::usage,
                cat("there is no option ", printable(option_name, 64), " before the command"),
                !setting.empty() ? setting
                : near.empty()   ? "run `mtrain --help`"
                                 : cat("did you mean ", near.front(), "? run `mtrain --help`"));
  }
  return option && option_name == word && option->get_expected_min() > 0 ? 2 : 1;
}

int report(const char* error_class, const std::string& message, const std::string& hint,
           int status) {
  std::cout.flush();
  // A message may quote a file or an argument with malicious control characters for the terminal.
  std::string help = hint.empty() ? "" : cat("  help: ", printable_lines(hint), "\n");
  write_standard_error(cat(headline(error_class, printable_lines(message)), help));
  return status;
}

/// The command in use, the deepest that was named: `mtrain plugins ls`.
const CLI::App& innermost(const CLI::App& app, std::string& spelled) {
  const CLI::App* at = &app;
  spelled = app.get_name();
  for (; !at->get_subcommands().empty(); spelled += " " + at->get_name())
    at = at->get_subcommands().front();
  return *at;
}

/// The hint for a full disk with the option that says where the command in use writes.
std::string with_place(const std::string& hint, const CLI::App& app) {
  if (!hint.starts_with(kFullDiskHint) || hint.substr(std::strlen(kFullDiskHint)).starts_with(" ("))
    return hint;
  std::string spelled;
  const CLI::App& command = innermost(app, spelled);
  std::string place;
  for (const char* name : {"--output", "--into", "to", "file", "run"}) {
    const CLI::Option* option = command.get_option_no_throw(name);
    if (!option || (name == std::string_view("run") && command.get_name() != "import")) continue;
    place = option->get_positional() ? cat("another ", option->get_type_name())
                                     : cat(name, " ", option->get_type_name());
    break;
  }
  if (place.empty() && command.get_option_no_throw("overrides")) place = "run.dir=PATH";
  if (place.empty()) return hint;
  return cat(kFullDiskHint, " (", place, ")", hint.substr(std::strlen(kFullDiskHint)));
}

/// CLI11's message for a number outside of its option's range, without six decimals for each limit.
std::string range_fault(const CLI::App& command, const std::string& message) {
  constexpr std::string_view kValue = ": Value ", kNot = " not in range ";
  const size_t value = message.find(kValue), limits = message.rfind(kNot);
  if (value == std::string::npos || limits == std::string::npos) return message;
  const std::string name = message.substr(0, value);
  const CLI::Option* option = nullptr;
  for (const CLI::App* at = &command; at && !option; at = at->get_parent())
    option = at->get_option_no_throw(name);
  const std::string range = option ? value_range(*option) : "";
  const size_t begin = value + kValue.size();
  return range.empty() ? message
                       : cat(name, ": wanted a number ", range, ", got ",
                             message.substr(begin, limits - begin));
}

/// CLI11's message for a missing argument, with the name that the help page shows for it.
std::string missing_argument(const CLI::App& command, const std::string& message) {
  constexpr std::string_view kRequired = " is required";
  if (!message.ends_with(kRequired)) return message;
  const CLI::Option* option =
      command.get_option_no_throw(message.substr(0, message.size() - kRequired.size()));
  return option && option->get_positional() ? cat(option->get_type_name(), kRequired) : message;
}

/// The hint for a missing option whose value was given without its name: `data prepare book.txt`.
std::string value_without_option(const CLI::App& command, const std::string& message) {
  const std::string name = message.substr(0, message.find(' '));
  const CLI::Option* missing = command.get_option_no_throw(name);
  const CLI::Option* settings = command.get_option_no_throw("settings");
  if (!missing || !settings || missing->get_positional()) return "";
  for (const std::string& word : settings->results())
    if (word.find('=') == std::string::npos)
      return cat("write ", name, " ", printable(word, 100),
                 ": a word without a name is a setting, ", settings->get_type_name());
  return "";
}

/// CLI11's own messages, except for a wrong word, for which the nearest valid word is suggested.
int report_usage(const CLI::App& app, const Cli& cli, const CLI::ParseError& error) {
  std::string spelled;
  const CLI::App& command = innermost(app, spelled);
  std::string message = range_fault(command, missing_argument(command, error.what()));
  std::string hint = cat("run `", spelled, " --help`");
  std::vector<std::string> rest = app.remaining(true), names = command_names(command);
  if (!rest.empty() && rest.front().starts_with('-')) {
    // The values of --set are joined by a control character (recipe_words.cc).
    const std::string& option = rest.front();
    message = cat("`", spelled, "` has no option ",
                  option.starts_with("--set=") ? std::string("--set") : option);
    const std::string setting =
        command.get_option_no_throw("overrides")
            ? setting_for_option(rest.front(), cli.words,
                                 PluginHost(plugin_folders(cli.plugin_path)))
            : "";
    std::vector<std::string> options;
    for (const auto* option : command.get_options())
      for (const auto& known : option->get_lnames()) options.push_back("--" + known);
    const std::vector<std::string> near =
        nearest(rest.front().substr(0, rest.front().find('=')), options, 1);
    std::string spelled_so = rest.front().substr(0, rest.front().find('='));
    std::replace(spelled_so.begin(), spelled_so.end(), '_', '-');
    if (std::find(options.begin(), options.end(), spelled_so) != options.end())
      hint = cat("did you mean ", spelled_so, "? Run `", spelled, " --help`");
    else if (option == "--nproc" || option.starts_with("--nproc="))
      hint = cat("`", spelled, "` is one process: leave --nproc out");
    else if (!setting.empty())
      hint = setting;
    else if (const std::string ours = preparation_option(option);
             command.get_name() == "prepare" && !ours.empty())
      hint = ours;
    else if (!near.empty())
      hint = cat("did you mean ", near.front(), "? Run `", spelled, " --help`");
  } else if (!rest.empty() && !names.empty()) {
    std::vector<std::string> near = nearest(rest.front(), names, 1);
    message = cat("there is no command `", spelled, " ", rest.front(), "`");
    hint = cat(near.empty() ? cat("it has: ", join(names, ", "), ".")
                            : cat("did you mean `", spelled, " ", near.front(), "`?"),
               " Run `", spelled, " --help`");
  } else if (!rest.empty()) {
    message = cat("`", spelled, "` does not take '", rest.front(), "'");
  } else if (!names.empty() && dynamic_cast<const CLI::RequiredError*>(&error)) {
    message = cat("`", spelled, "` needs a command");
    hint = cat("it has: ", join(names, ", "), "; run `", spelled, " --help`");
  } else if (const std::string meant = value_without_option(command, message); !meant.empty()) {
    hint = meant;
  }
  return report(name(ErrorClass::usage), printable(message, 500), hint,
                static_cast<int>(ErrorClass::usage));
}

/// spdlog silently replaces an unknown level by another one, so unknown levels are refused here.
void check_log_level() {
  static constexpr const char* kLevels[] = {"debug", "info", "warn", "error", "off"};
  const char* level = std::getenv("MTRAIN_LOG");
  if (!level || std::find(std::begin(kLevels), std::end(kLevels), std::string_view(level)) !=
                    std::end(kLevels))
    return;
  throw Error(ErrorClass::usage,
              cat("MTRAIN_LOG is '", printable(level, 64), "', which is not a log level"),
              "set it to debug, info, warn, error or off, or unset it");
}

int parse_and_run(CLI::App& app, Cli& cli, std::vector<std::string> arguments) {
  try {
    check_log_level();
    arguments = with_default_command(app, joined_pairs(arguments));
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes a vector from its end
    app.parse(std::move(arguments));
  } catch (const CLI::Success& help) {
    app.exit(help);
    return 0;
  } catch (const CLI::ParseError& error) {
    return report_usage(app, cli, error);
  } catch (...) {
    const CaughtError error = caught_error();
    return report(error.kind.c_str(), error.message, with_place(error.help, app), error.status);
  }
  return cli.status;
}

// If the caller closed standard input, output or error, the next file that mtrain opens would get
// that descriptor, and output would be written into it.
void occupy_standard_streams() {
  int fd;
  do fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= 2);
  if (fd > 2) ::close(fd);
}

/// A plugin folder that does not exist is not an error, but its plugins are then not found, so
/// warn.
void warn_of_absent_folders(const std::vector<std::string>& from_command_line) {
  auto look = [](const char* given_by, const std::string& folder) {
    std::error_code ignored;
    if (!folder.empty() && !fs::is_directory(folder, ignored))
      log_warn(given_by, ": ", printable(folder),
               fs::exists(folder, ignored) ? " is not a folder" : " does not exist",
               "; no plugins are read from it");
  };
  for (const auto& folder : from_command_line) look("--plugin-path", folder);
  if (const char* variable = std::getenv("MTRAIN_PLUGIN_PATH"))
    for (const auto& folder : split(variable, ':')) look("MTRAIN_PLUGIN_PATH", folder);
}

}  // namespace

std::string headline(const char* error_class, const std::string& message) {
  // A report of several lines starts on a new line, so that its locations line up.
  const char* behind = message.find('\n') == std::string::npos ? " " : "\n";
  return cat("mtrain: error[", error_class, "]:", behind, message, "\n");
}

void print_json(const nlohmann::ordered_json& json) {
  std::cout << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

bool path_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

PluginHost plugin_host(const Cli& cli) {
  static std::once_flag warn_once;
  if (launched_rank() == 0) std::call_once(warn_once, warn_of_absent_folders, cli.plugin_path);
  return PluginHost(plugin_folders(cli.plugin_path));
}

std::vector<const CLI::App*> visible_commands(const CLI::App& app) {
  std::vector<const CLI::App*> out;
  for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) out.push_back(command);
  return out;
}

std::vector<std::string> with_default_command(const CLI::App& app,
                                              std::vector<std::string> arguments) {
  size_t at = 0;
  while (at < arguments.size() && arguments[at].starts_with('-') && arguments[at] != "-")
    at += words_of_option(app, arguments[at], arguments);
  if (at >= arguments.size()) return arguments;
  if (is_command(app, arguments[at])) {
    // `--nproc 2 rerun RUN`: CLI11 expects an option of the command after the command.
    auto begin = arguments.begin(), command = begin + static_cast<std::ptrdiff_t>(at);
    auto foreign = [&](const std::string& word) {
      return word.starts_with("-") && !app.get_option_no_throw(word.substr(0, word.find('=')));
    };
    if (std::any_of(begin, command, foreign)) std::rotate(begin, command, command + 1);
    return arguments;
  }
  const std::string& word = arguments[at];
  bool like_a_recipe = word == "-" || word.find_first_of("./") != std::string::npos ||
                       find_recipe(word, search_folders(plugin_folders({}))).has_value();
  std::vector<std::string> names = command_names(app);
  std::vector<std::string> near = nearest(word, names, 1);
  if (!is_command(app, "train") || (!like_a_recipe && !near.empty())) {
    throw Error(ErrorClass::usage, cat("there is no command '", printable(word, 64), "'"),
                near.empty() ? cat("commands: ", join(names, ", "),
                                   "; a recipe is a file, e.g. recipes/quickstart.yaml")
                             : cat("did you mean `mtrain ", near.front(),
                                   "`? commands: ", join(names, ", ")));
  }
  arguments.insert(arguments.begin(), "train");  // which takes the options of the program too
  return arguments;
}

void limit_to_one_argument(CLI::App& app) {
  for (auto* option : app.get_options())
    if (!option->get_positional()) option->allow_extra_args(false);
  for (auto* command : app.get_subcommands([](CLI::App*) { return true; }))
    limit_to_one_argument(*command);
}

std::string check_count(const std::string& text) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  return digits && text.size() <= 18
             ? ""
             : cat("wanted a whole number from 0 to 10^18 - 1, got ", printable(text, 60));
}

std::string check_output_path(const std::string& path) {
  const bool home = path == "~" || path.starts_with("~/");
  return home ? cat(printable(path),
                    " is a folder called ~, not the home folder: only a shell replaces ~, at the "
                    "start of a word and outside of quotes (--output ~/x, not --output=~/x); write "
                    "it so, or the whole path")
              : "";
}

int run_cli(CLI::App& app, Cli& cli, std::vector<std::string> arguments) {
  occupy_standard_streams();
  prepare_last_words();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may grow no further is an error of the write, which
                                  // is reported with its name
  cli.words = take_rank_words(arguments);
  int status = parse_and_run(app, cli, std::move(arguments));
  std::cout.flush();
  if (status == 0 && !std::cout)
    return report(name(ErrorClass::io), "standard output could not be written",
                  "is the disk full, or the pipe closed?", static_cast<int>(ErrorClass::io));
  return status;
}

}  // namespace mtrain
