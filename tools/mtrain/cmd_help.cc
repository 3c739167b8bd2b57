// mtrain help: shows the help of a command, or writes manual pages.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "cli.h"
#include "man_page.h"
#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/recipe/search_path.h"

namespace mtrain {
namespace {

struct HelpOptions {
  std::vector<std::string> words;  // of the command
  bool man = false;
  std::string output;
};

std::vector<std::string> names_below(const CLI::App& command) {
  std::vector<std::string> names;
  for (const auto* each : visible_commands(command)) names.push_back(each->get_name());
  return names;
}

/// The command that the words name; `spelled` becomes "mtrain data prepare".
const CLI::App& command_of(const CLI::App& app, const std::vector<std::string>& words,
                           std::string& spelled) {
  const CLI::App* at = &app;
  spelled = app.get_name();
  for (const auto& word : words) {
    const CLI::App* next = nullptr;
    for (const auto* each : visible_commands(*at))
      if (each->get_name() == word) next = each;
    if (!next) {
      std::vector<std::string> names = names_below(*at), near = nearest(word, names, 1);
      if (at == &app && find_recipe(word, search_folders(plugin_folders({}))))
        throw Error(ErrorClass::usage, cat(printable(word, 64), " is a recipe, not a command"),
                    cat("`mtrain check ", word, "` describes it, `mtrain recipes cat ", word,
                        "` shows it, `mtrain ", word, "` trains it"));
      throw Error(ErrorClass::usage,
                  cat("there is no command `", spelled, " ", printable(word, 64), "`"),
                  !near.empty()   ? cat("did you mean `", spelled, " ", near.front(), "`?")
                  : names.empty() ? cat("`", spelled, "` has no commands of its own")
                                  : cat("it has: ", join(names, ", ")));
    }
    at = next;
    spelled += " " + word;
  }
  return *at;
}

/// Writes the pages of a command and its subcommands; returns the number of pages.
size_t write_pages(const CLI::App& command, const std::string& spelled, const fs::path& folder) {
  std::string name = spelled;
  std::replace(name.begin(), name.end(), ' ', '-');
  write_file_atomic(folder / (name + ".1"), man_page(command, spelled));
  size_t pages = 1;
  for (const auto* each : visible_commands(command))
    pages += write_pages(*each, spelled + " " + each->get_name(), folder);
  return pages;
}

void help(const CLI::App& app, const Cli& cli, const HelpOptions& options) {
  std::string spelled;
  const CLI::App& command = command_of(app, options.words, spelled);
  if (!options.output.empty()) {
    make_directories(options.output);
    size_t pages = write_pages(command, spelled, options.output);
    if (!cli.quiet)
      std::cout << "wrote " << pages << " manual pages to " << printable(options.output) << '\n';
  } else if (options.man) {
    std::cout << man_page(command, spelled);
  } else {
    // Not App::help(), which shows the page of the running command, which is `help`.
    std::cout << command.get_formatter()->make_help(&command, spelled, CLI::AppFormatMode::Normal);
  }
}

}  // namespace

void add_help_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("help", "show the help of a command");
  auto options = std::make_shared<HelpOptions>();
  command->add_option("command", options->words, "the command; default: the list of commands")
      ->type_name("COMMAND");
  auto* man = command->add_flag("--man", options->man, "print a manual page");
  command
      ->add_option("-o,--output", options->output,
                   "with --man: write the pages of this command and its subcommands to this folder")
      ->check(check_output_path)
      ->needs(man)
      ->type_name("DIR");
  command->footer(
      "Examples:\n"
      "  mtrain help data prepare\n"
      "  mtrain help --man train | man -l -\n"
      "  mtrain help --man -o ~/.local/share/man/man1");
  command->callback([&app, &cli, options] { help(app, cli, *options); });
}

}  // namespace mtrain
