#include "cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <new>
#include <system_error>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) names.push_back(command->get_name());
  return names;
}

bool is_command(const CLI::App& app, const std::string& word) {
  auto commands = app.get_subcommands([&](const CLI::App* command) { return command->get_name() == word; });
  return !commands.empty();
}

/// True when this word is an option of the program that takes the next word as its value.
bool takes_value(const CLI::App& app, const std::string& word) {
  if (word.find('=') != std::string::npos) return false;
  const auto* option = app.get_option_no_throw(word);
  return option && option->get_expected_min() > 0;
}

int report(const char* error_class, const std::string& message, const std::string& hint, int status) {
  std::cout.flush();
  std::cerr << "mtrain: error[" << error_class << "]: " << message << '\n';
  if (!hint.empty()) std::cerr << "  help: " << hint << '\n';
  return status;
}

int report(const Error& error) {
  return report(name(error.error_class()), error.message(), error.hint(), error.exit_status());
}

/// The command in use, for "run `mtrain plugins ls --help`".
std::string command_line_so_far(const CLI::App& app) {
  std::string out = app.get_name();
  for (const auto* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    out += " " + at->get_name();
  }
  return out;
}

int report_usage(const CLI::App& app, const CLI::ParseError& error) {
  std::string message = error.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return report(name(ErrorClass::usage), printable(message, 500), cat("run `", command_line_so_far(app), " --help`"),
                static_cast<int>(ErrorClass::usage));
}

int parse_and_run(CLI::App& app, Cli& cli, std::vector<std::string> arguments) {
  try {
    arguments = with_default_command(app, std::move(arguments));
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes a vector from its end
    app.parse(std::move(arguments));
  } catch (const CLI::Success& help) {
    app.exit(help);
    return 0;
  } catch (const CLI::ParseError& error) {
    return report_usage(app, error);
  } catch (const Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    return report("internal", "out of memory", "ask for less (a smaller model or batch) or use a larger machine", 70);
  } catch (const std::filesystem::filesystem_error& error) {
    return report(name(ErrorClass::io), error.what(), "", static_cast<int>(ErrorClass::io));
  } catch (const std::exception& error) {
    return report("internal", error.what(), "this is a defect of mtrain: please report it with this line", 70);
  } catch (...) {
    return report("internal", "something was thrown that is no std::exception", "a plugin may be at fault", 70);
  }
  return cli.status;
}

}  // namespace

PluginHost plugin_host(const Cli& cli) { return PluginHost(plugin_folders(cli.plugin_path)); }

std::vector<std::string> with_default_command(const CLI::App& app, std::vector<std::string> arguments) {
  size_t at = 0;
  while (at < arguments.size() && arguments[at].starts_with('-')) at += takes_value(app, arguments[at]) ? 2 : 1;
  if (at >= arguments.size() || is_command(app, arguments[at])) return arguments;
  const std::string& word = arguments[at];
  std::error_code error;
  bool like_a_recipe = word.find_first_of("./") != std::string::npos || fs::exists(word, error);
  std::vector<std::string> names = command_names(app);
  std::vector<std::string> near = nearest(word, names, 1);
  if (!is_command(app, "train") || (!like_a_recipe && !near.empty())) {
    throw Error(ErrorClass::usage, cat("there is no command '", printable(word, 64), "'"),
                near.empty() ? cat("commands: ", join(names, ", "), "; a recipe is a file, e.g. recipes/quickstart.yaml")
                             : cat("did you mean `mtrain ", near.front(), "`? commands: ", join(names, ", ")));
  }
  arguments.insert(arguments.begin() + static_cast<std::ptrdiff_t>(at), "train");
  return arguments;
}

int run_cli(CLI::App& app, Cli& cli, std::vector<std::string> arguments) {
  int status = parse_and_run(app, cli, std::move(arguments));
  std::cout.flush();
  if (status == 0 && !std::cout)
    return report(name(ErrorClass::io), "standard output could not be written", "is the disk full, or the pipe closed?",
                  static_cast<int>(ErrorClass::io));
  return status;
}

}  // namespace mtrain
