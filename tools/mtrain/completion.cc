#include "completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "complete_paths.h"
#include "mtrain/base/text.h"
#include "mtrain/chat/ready_made.h"
#include "mtrain/config/override.h"
#include "mtrain/recipe/complete.h"

namespace mtrain {
namespace {

/// The meaning of the words before the word that is being typed.
struct Typed {
  const CLI::App* command = nullptr;       // the innermost one
  std::string spelled;                     // "config show"
  std::vector<std::string> words;          // those that are neither commands nor options
  const CLI::Option* option = nullptr;     // the word being typed is its value
  std::string tokenizer, dataset = "sft";  // of --tokenizer and --dataset
};

const CLI::App* subcommand(const CLI::App& app, const std::string& name) {
  for (const auto* command : visible_commands(app))
    if (command->get_name() == name) return command;
  return nullptr;
}

/// An option of a command or of those around it.
const CLI::Option* option_of(const CLI::App* command, const std::string& name) {
  for (; command; command = command->get_parent())
    if (const auto* option = command->get_option_no_throw(name);
        option && !option->get_positional())
      return option;
  return nullptr;
}

Typed read_words(const CLI::App& app, const std::vector<std::string>& words, Cli& cli) {
  Typed out;
  out.command = &app;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.size() > 1 && word[0] == '-') {
      const std::string name = word.substr(0, word.find('='));
      const auto* option = option_of(out.command, name);
      if (!option && out.command == &app)
        option =
            option_of(subcommand(app, "train"), name);  // `train` may be omitted before a recipe
      if (!option || option->get_expected_min() == 0 || word.find('=') != std::string::npos)
        continue;
      if (i + 2 >= words.size())
        out.option = option;
      else if (word == "--plugin-path")
        cli.plugin_path.push_back(words[i + 1]);
      else if (option->check_lname("tokenizer"))
        out.tokenizer = words[i + 1];
      else if (option->check_lname("dataset"))
        out.dataset = words[i + 1];
      ++i;
    } else if (const auto* deeper = out.words.empty() ? subcommand(*out.command, word) : nullptr) {
      out.command = deeper;
      out.spelled += (out.spelled.empty() ? "" : " ") + word;
    } else {
      if (out.spelled.empty()) {  // a recipe without a command means `train`
        out.spelled = "train";
        if (const auto* train = subcommand(app, "train")) out.command = train;
      }
      out.words.push_back(word);
    }
  }
  return out;
}

std::vector<Candidate> components(const std::string& kind, const PluginHost& plugins) {
  SchemaCatalog catalog = schema_catalog(plugins);
  std::vector<Candidate> out;
  for (const auto& name : catalog.components(kind))
    if (const Schema& component = *catalog.component(kind, name); component.needs.empty())
      out.push_back({name, component.doc});
  return out;
}

void append(std::vector<Candidate>& to, std::vector<Candidate> more) {
  std::move(more.begin(), more.end(), std::back_inserter(to));
}

/// The chat templates that come with mtrain.
std::vector<Candidate> template_names() {
  std::vector<Candidate> out;
  for (auto& name : chat::ready_made_names()) out.push_back({std::move(name), "chat template"});
  return out;
}

/// Candidates for the value of an option, by the name of its type or the choices in it:
/// "FORMAT:{text,json}".
std::vector<Candidate> option_values(const CLI::Option& option, const std::string& typed,
                                     const Cli& cli) {
  const std::string type = option.get_type_name();
  size_t begin = type.find('{'), end = type.find('}');
  std::vector<Candidate> out;
  if (begin != std::string::npos && end != std::string::npos && begin < end)
    for (auto& choice : split(type.substr(begin + 1, end - begin - 1), ','))
      out.push_back({std::move(choice), ""});
  else if (type.starts_with("RUN"))
    return type.find("DIR") == std::string::npos ? complete_run(typed) : complete_model(typed);
  else if (option.check_lname("template"))
    append(out = template_names(), complete_path(typed));
  else if (type == "DIR")
    return complete_file(typed, "/");
  else if (type == "PREFIX")
    return complete_pair(typed);
  else if (type == "FILE" || (type.ends_with("PATH") && option.get_group() == "Options"))
    return complete_path(typed);
  else if (type == "NAME")
    for (const char* kind : {"tokenizer", "dataset", "model"})
      if (option.check_lname(kind)) return components(kind, plugin_host(cli));
  return out;
}

std::vector<Candidate> options(const CLI::App* command) {
  std::vector<Candidate> out;
  for (; command; command = command->get_parent())
    for (const auto* option : command->get_options())
      if (!option->get_positional())
        for (const auto& name : option->get_lnames())
          out.push_back({"--" + name, option->get_description()});
  return out;
}

/// After "--format=": the option's values.
std::vector<Candidate> joined_values(const CLI::App* command, const std::string& word,
                                     const Cli& cli) {
  const size_t begin = word.find('=') + 1;
  const auto* option = option_of(command, word.substr(0, begin - 1));
  if (!option || option->get_expected_min() == 0) return {};
  std::vector<Candidate> out = option_values(*option, word.substr(begin), cli);
  for (auto& candidate : out) candidate.text = word.substr(0, begin) + candidate.text;
  return out;
}

std::vector<Candidate> plugin_names(const PluginHost& plugins) {
  std::vector<Candidate> out;
  for (const auto& file : plugins.list())
    if (file.problem.empty() && !file.shadowed)
      out.push_back({cat(file.kind, "_", file.name), file.doc});
  return out;
}

/// Candidates for a word that is not an option. There is one letter per word of the command; the
/// last letter applies to all further words: r recipe, R run or recipe, u run, k key, recipe or
/// run, K key, o override, f recipe file, p plugin, s shell, d prefix of a pair, F any file, D
/// both, t setting of the tokenizer, T also a pair.
const char* kinds_of(const std::string& spelled) {
  static const std::pair<const char*, const char*> kWords[] = {{"train", "ro"},
                                                               {"bench", "ro"},
                                                               {"check", "Ro"},
                                                               {"verify layouts", "ro"},
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
                                                               {"checkpoint rewind", "u"},
                                                               {"checkpoint verify", "u"},
                                                               {"checkpoint digest", "u"},
                                                               {"plugins inspect", "p"},
                                                               {"plugins schema", "F"},
                                                               {"data prepare", "t"},
                                                               {"data tokenize", "t"},
                                                               {"data inspect", "d"},
                                                               {"data stats", "d"},
                                                               {"data merge", "d"},
                                                               {"data verify", "T"},
                                                               {"data show", "Dt"},
                                                               {"data pack", "Ft"},
                                                               {"data render", "Ft"},
                                                               {"export", "uF"},
                                                               {"import", "FFo"},
                                                               {"convert", "FF"},
                                                               {"merge", "F"},
                                                               {"adapters ls", "F"},
                                                               {"adapters diff", "FF"},
                                                               {"adapters merge", "F"},
                                                               {"eval", "o"},
                                                               {"generate", "o"},
                                                               {"completion", "s"}};
  for (const auto& [command, kinds] : kWords)
    if (spelled == command) return kinds;
  return "";
}

/// Settings of a component, "path=", values for those that have choices, and files for those that
/// name one. `before`: what precedes each name.
std::vector<Candidate> component_settings(const char* kind, const std::string& name,
                                          const std::string& before, std::string word,
                                          const PluginHost& plugins) {
  SchemaCatalog catalog = schema_catalog(plugins);
  const Schema* schema = catalog.component(kind, name);
  std::vector<Candidate> out;
  if (!word.starts_with(before)) return out;
  word.erase(0, before.size());
  size_t equals = word.find('=');
  for (const auto& spec : schema ? schema->fields : std::vector<FieldSpec>{}) {
    if (equals == std::string::npos) out.push_back({cat(before, spec.path, "="), spec.doc});
    if (equals == std::string::npos || word.substr(0, equals) != spec.path) continue;
    for (const auto& choice : spec.choices)
      out.push_back({cat(before, spec.path, "=", choice), ""});
    for (auto& path : complete_path_setting(spec, word.substr(equals + 1)))
      out.push_back({cat(before, spec.path, "=", path.text), path.doc});
  }
  return out;
}

/// Values of an override, including files for settings that name one, without paths that do not
/// exist.
std::vector<Candidate> with_paths(const std::string& word, std::vector<Candidate> out,
                                  const PluginHost& plugins) {
  size_t equals = word.find('=');
  if (equals == std::string::npos) return out;
  size_t sign = std::min(word.find_first_not_of("+~"), equals);
  std::string before = word.substr(0, equals + 1), key = word.substr(sign, equals - sign),
              section = key.substr(0, key.find('.'));
  if (section == key) return out;
  const SchemaCatalog catalog = schema_catalog(plugins);
  for (const Schema* schema : catalog.all_owners(section))
    for (const auto& spec : schema->fields) {
      if (section + "." + spec.path != key) continue;
      std::erase_if(out, [&](const Candidate& c) {
        return c.text.starts_with(before) && is_dead_path(spec, c.text.substr(before.size()));
      });
      for (auto& path : complete_path_setting(spec, word.substr(before.size())))
        out.push_back({before + path.text, path.doc});
    }
  std::stable_sort(out.begin(), out.end(),
                   [](const Candidate& a, const Candidate& b) { return a.text < b.text; });
  return out;
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
      append(out, complete_run(word));
      return out;
    case 'K':
      return complete_key(word, schema_catalog(plugins));
    case 'f':
      return complete_file(word, ".yaml");
    case 'p':
      return plugin_names(plugins);
    case 'd':
      return complete_pair(word);
    case 'F':
      return complete_path(word);
    case 'D':
      append(out, complete_pair(word));
      append(out, complete_path(word));
      return out;
    case 'T':
      append(out, complete_pair(word));
      [[fallthrough]];
    case 't':
      append(out, component_settings("tokenizer", typed.tokenizer, "", word, plugins));
      if (typed.spelled == "data show" || typed.spelled == "data pack")
        append(out, component_settings("dataset", typed.dataset, "dataset.", word, plugins));
      return out;
    case 's':
      return {{"bash", ""}, {"zsh", ""}, {"fish", ""}};
    case 'o': {
      std::string recipe;
      for (const auto& before : typed.words)
        if (recipe.empty() && find_recipe(before, folders))
          recipe = find_recipe(before, folders)->file.string();
      return with_paths(word, complete_override(word, recipe, plugins), plugins);
    }
    default:
      return out;
  }
}

/// After `mtrain help`: the subcommands of the commands typed so far.
std::vector<Candidate> commands_below(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  for (const auto& word : words)
    if (!(at = subcommand(*at, word))) return {};
  std::vector<Candidate> out;
  for (const auto* command : visible_commands(*at))
    out.push_back({command->get_name(), command->get_description()});
  return out;
}

std::vector<Candidate> candidates(const CLI::App& app, Cli& cli,
                                  const std::vector<std::string>& words) {
  const std::string& word = words.back();
  Typed typed = read_words(app, words, cli);
  if (typed.option) return option_values(*typed.option, word, cli);
  if (word.starts_with('-'))
    return word.find('=') == std::string::npos ? options(typed.command)
                                               : joined_values(typed.command, word, cli);
  std::vector<Candidate> out;
  if (typed.spelled == "help") return commands_below(app, typed.words);
  if (typed.words.empty())
    for (const auto* command : visible_commands(*typed.command))
      out.push_back({command->get_name(), command->get_description()});
  PluginHost plugins = plugin_host(cli);
  if (typed.spelled.empty()) append(out, words_for('r', typed, word, plugins));
  std::string kinds = kinds_of(typed.spelled);
  if (kinds.empty()) return out;
  size_t position =
      static_cast<size_t>(std::count_if(typed.words.begin(), typed.words.end(),
                                        [](const auto& w) { return !looks_like_override(w); }));
  append(out, words_for(kinds[std::min(position, kinds.size() - 1)], typed, word, plugins));
  return out;
}

/// Splits a command line at blanks, with a shell's rules for quotes and backslashes; the last part
/// may be empty.
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
    // A shell cannot show a message while a line is being typed.
  }
  return 0;
}

}  // namespace mtrain
