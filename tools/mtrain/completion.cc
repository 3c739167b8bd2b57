#include "completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "mtrain/base/text.h"
#include "mtrain/config/override.h"
#include "mtrain/train/complete.h"

namespace mtrain {
namespace {

/// What the words before the one being typed have said.
struct Typed {
  const CLI::App* command = nullptr;    // the deepest that was named
  std::string spelled;                  // "config show"
  std::vector<std::string> words;       // those that are neither commands nor options
  const CLI::Option* option = nullptr;  // the word being typed is its value
};

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  std::vector<const CLI::App*> out;
  for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) out.push_back(command);
  return out;
}

const CLI::App* subcommand(const CLI::App& app, const std::string& name) {
  for (const auto* command : subcommands(app))
    if (command->get_name() == name) return command;
  return nullptr;
}

/// An option of a command or of those around it.
const CLI::Option* option_of(const CLI::App* command, const std::string& name) {
  for (; command; command = command->get_parent())
    if (const auto* option = command->get_option_no_throw(name); option && !option->get_positional())
      return option;
  return nullptr;
}

Typed read_words(const CLI::App& app, const std::vector<std::string>& words, Cli& cli) {
  Typed out;
  out.command = &app;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.size() > 1 && word[0] == '-') {
      const auto* option = option_of(out.command, word.substr(0, word.find('=')));
      if (!option || option->get_expected_min() == 0 || word.find('=') != std::string::npos) continue;
      if (i + 2 >= words.size())
        out.option = option;
      else if (word == "--plugin-path")
        cli.plugin_path.push_back(words[i + 1]);
      ++i;
    } else if (const auto* deeper = out.words.empty() ? subcommand(*out.command, word) : nullptr) {
      out.command = deeper;
      out.spelled += (out.spelled.empty() ? "" : " ") + word;
    } else {
      if (out.spelled.empty()) {  // a bare recipe is trained
        out.spelled = "train";
        if (const auto* train = subcommand(app, "train")) out.command = train;
      }
      out.words.push_back(word);
    }
  }
  return out;
}

/// The choices that an option names in its description: "FORMAT:{text,json}".
std::vector<Candidate> option_values(const CLI::Option& option, const std::string& typed) {
  const std::string type = option.get_type_name();
  size_t begin = type.find('{'), end = type.find('}');
  std::vector<Candidate> out;
  if (begin != std::string::npos && end != std::string::npos && begin < end)
    for (auto& choice : split(type.substr(begin + 1, end - begin - 1), ','))
      out.push_back({std::move(choice), ""});
  else if (type.starts_with("RUN"))
    return complete_run(typed);
  else if (type == "DIR" || type == "FILE")
    return complete_file(typed, type == "DIR" ? "/" : fs::path(typed).extension().string());
  return out;
}

std::vector<Candidate> options(const CLI::App* command) {
  std::vector<Candidate> out;
  for (; command; command = command->get_parent())
    for (const auto* option : command->get_options())
      if (!option->get_positional())
        for (const auto& name : option->get_lnames()) out.push_back({"--" + name, option->get_description()});
  return out;
}

std::vector<Candidate> plugin_names(const PluginHost& plugins) {
  std::vector<Candidate> out;
  for (const auto& file : plugins.list())
    if (file.problem.empty() && !file.shadowed) out.push_back({cat(file.kind, "_", file.name), file.doc});
  return out;
}

void append(std::vector<Candidate>& to, std::vector<Candidate> more) {
  std::move(more.begin(), more.end(), std::back_inserter(to));
}

/// What may stand where a word is typed that is no option. The letters say it, one per word of the command,
/// the last for all further ones: r recipe, R run or recipe, u run, k key or recipe, K key, o override, f
/// recipe file, p plugin, s shell.
const char* kinds_of(const std::string& spelled) {
  static const std::pair<const char*, const char*> kWords[] = {{"train", "ro"},
                                                               {"check", "ro"},
                                                               {"config show", "kko"},
                                                               {"config why", "kko"},
                                                               {"config tree", "ro"},
                                                               {"config diff", "RRo"},
                                                               {"config explain", "K"},
                                                               {"config searchpath", "r"},
                                                               {"config migrate", "f"},
                                                               {"recipes cat", "r"},
                                                               {"recipes cp", "rf"},
                                                               {"recipes new", "f"},
                                                               {"recipes verify", "r"},
                                                               {"rerun", "uo"},
                                                               {"runs show", "u"},
                                                               {"checkpoint ls", "u"},
                                                               {"checkpoint verify", "u"},
                                                               {"checkpoint digest", "u"},
                                                               {"plugins inspect", "p"},
                                                               {"eval", "o"},
                                                               {"completion", "s"}};
  for (const auto& [command, kinds] : kWords)
    if (spelled == command) return kinds;
  return "";
}

std::vector<Candidate> words_for(char kind, const Typed& typed, const std::string& word,
                                 const PluginHost& plugins) {
  auto folders = search_folders(plugins.folders());
  std::vector<Candidate> out;
  switch (kind) {
    case 'r':
      return complete_recipe(word, folders);
    case 'R':
      append(out, complete_recipe(word, folders));
      append(out, complete_run(word));
      return out;
    case 'u':
      return complete_run(word);
    case 'k':
      append(out, complete_key(word, schema_catalog(plugins)));
      append(out, complete_recipe(word, folders));
      return out;
    case 'K':
      return complete_key(word, schema_catalog(plugins));
    case 'f':
      return complete_file(word, ".yaml");
    case 'p':
      return plugin_names(plugins);
    case 's':
      return {{"bash", ""}, {"zsh", ""}, {"fish", ""}};
    case 'o': {
      std::string recipe;
      for (const auto& before : typed.words)
        if (recipe.empty() && find_recipe(before, folders))
          recipe = find_recipe(before, folders)->file.string();
      return complete_override(word, recipe, plugins);
    }
    default:
      return out;
  }
}

std::vector<Candidate> candidates(const CLI::App& app, Cli& cli, const std::vector<std::string>& words) {
  const std::string& word = words.back();
  Typed typed = read_words(app, words, cli);
  if (typed.option) return option_values(*typed.option, word);
  if (word.size() > 0 && word[0] == '-') return options(typed.command);
  std::vector<Candidate> out;
  if (typed.words.empty())
    for (const auto* command : subcommands(*typed.command))
      out.push_back({command->get_name(), command->get_description()});
  PluginHost plugins = plugin_host(cli);
  if (typed.spelled.empty()) append(out, words_for('r', typed, word, plugins));
  std::string kinds = kinds_of(typed.spelled);
  if (kinds.empty()) return out;
  size_t position = static_cast<size_t>(std::count_if(typed.words.begin(), typed.words.end(),
                                                      [](const auto& w) { return !looks_like_override(w); }));
  append(out, words_for(kinds[std::min(position, kinds.size() - 1)], typed, word, plugins));
  return out;
}

/// Parts a command line at blanks, as a shell does with quotes and backslashes; the last part may be empty.
std::vector<std::string> shell_words(const std::string& line) {
  std::vector<std::string> out = {""};
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    char c = line[i];
    if (c == '\\' && quote != '\'' && i + 1 < line.size())
      out.back() += line[++i];
    else if (quote != 0)
      c == quote ? void(quote = 0) : void(out.back() += c);
    else if (c == '\'' || c == '"')
      quote = c;
    else if (c != ' ' && c != '\t')
      out.back() += c;
    else if (!out.back().empty())
      out.emplace_back();
  }
  return out;
}

}  // namespace

int answer_completion(const CLI::App& app, Cli& cli, std::vector<std::string> words) {
  if (words.size() == 2 && words[0] == "--line") {
    words = shell_words(words[1]);
    words.erase(words.begin());  // the program
  } else if (!words.empty() && words[0] == "--") {
    words.erase(words.begin());
  }
  if (words.empty()) words.emplace_back();
  try {
    std::string last;
    for (const auto& candidate : candidates(app, cli, words))
      if (candidate.text.starts_with(words.back()) && candidate.text != last) {
        last = candidate.text;
        std::cout << candidate.text << '\t' << printable(candidate.doc, 120) << '\n';
      }
  } catch (const std::exception&) {
    // A shell can show no message in the middle of a line.
  }
  return 0;
}

}  // namespace mtrain
