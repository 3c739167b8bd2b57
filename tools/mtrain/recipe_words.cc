#include "recipe_words.h"

#include <CLI/CLI.hpp>
#include <climits>
#include <iostream>
#include <map>
#include <memory>

#include "cli.h"
#include "mtrain/base/error.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/base/text_stream.h"
#include "mtrain/recipe/search_path.h"
#include "mtrain/record/run_history.h"

namespace mtrain {
namespace {

constexpr char kPairSeparator = '\x1f';

/// Searches the words of a command line in their order.
class Positions {
 public:
  explicit Positions(const Cli& cli) : words_(cli.words) {}
  /// The number of the next word that `is` accepts, from 1; 0 when there is none.
  template <class Accept>
  int next(const Accept& is) {
    while (at_ < words_.size() && !is(words_[at_])) ++at_;
    return at_ < words_.size() ? static_cast<int>(++at_) : 0;
  }

 private:
  const std::vector<std::string>& words_;
  size_t at_ = 0;
};

/// Whether a word names a folder and not a recipe; a recipe of the same name takes precedence.
bool is_folder_word(const Cli& cli, const std::string& word) {
  std::error_code ignored;
  if (word == "-" || !fs::is_directory(word, ignored)) return false;
  auto found = find_recipe(word, search_folders(plugin_folders(cli.plugin_path)));
  return !found || fs::is_directory(found->file, ignored);
}

bool is_file(const std::string& word) {
  std::error_code ignored;
  return fs::is_regular_file(word, ignored);
}

/// A file, or the name of a file that does not exist.
bool is_recipe_file(const std::string& word) {
  return is_file(word) || word.ends_with(".yaml") || word.ends_with(".yml");
}

}  // namespace

std::shared_ptr<RecipeWords> add_recipe_words(CLI::App& command, const std::string& first,
                                              const std::string& doc) {
  auto words = std::make_shared<RecipeWords>();
  command.add_option("recipe", words->first, doc)->required()->type_name(first);
  command.add_option("overrides", words->rest, "settings to change: key=value")
      ->type_name("KEY=VALUE");
  command
      .add_option("-f,--file", words->files,
                  "read settings from this file, one key=value per line (repeatable)")
      ->type_name("FILE");
  command.add_option("--set", words->pairs, "set a key to a literal value (repeatable)")
      ->type_name("KEY VALUE");
  return words;
}

std::vector<OverrideText> placed_overrides(const Cli& cli, const std::vector<std::string>& words) {
  std::vector<OverrideText> out;
  Positions positions(cli);
  for (const auto& word : words)
    out.push_back({word, positions.next([&](const std::string& w) { return w == word; })});
  return out;
}

RecipeRequest sorted_words(const Cli& cli, const RecipeWords& recipe_words, size_t most,
                           std::vector<std::string>& others) {
  RecipeRequest request;
  std::multimap<int, OverrideText> overrides;  // by their places
  Positions positions(cli), file_positions(cli), pair_positions(cli);
  // A word that was not typed is a setting that --nproc gives its ranks.
  const Location of_nproc{std::make_shared<Source>(SourceKind::command_line, "--nproc", ""), 0, 0};
  std::vector<std::string> words = recipe_words.rest;
  if (!recipe_words.first.empty()) words.insert(words.begin(), recipe_words.first);
  for (const auto& word : words) {
    if (others.size() < most && (!looks_like_override(word) || is_file(word))) {
      others.push_back(word);
      continue;
    }
    MT_USER_CHECK(looks_like_override(word) || !is_recipe_file(word), ErrorClass::usage,
                  cat(printable(word, 200), " is a second recipe; the first is ",
                      printable(others.front(), 200)),
                  "give one recipe per command; for a file of settings key=value use -f FILE");
    int at = positions.next([&](const std::string& w) { return w == word; });
    OverrideText override{word, at};
    if (at == 0) override.written = of_nproc;
    overrides.emplace(at == 0 ? INT_MAX : at, std::move(override));
  }
  Report report;
  for (const auto& file : recipe_words.files) {
    int at = file_positions.next(
        [](const std::string& w) { return w.starts_with("-f") || w.starts_with("--file"); });
    for (auto& override : read_override_file(file, report))
      overrides.emplace(at, std::move(override));
  }
  report.throw_if_errors();
  for (const auto& pair : recipe_words.pairs) {
    size_t separator = pair.find(kPairSeparator);
    MT_USER_CHECK(separator != std::string::npos, ErrorClass::usage,
                  "--set needs a key and a value", "--set KEY VALUE");
    int at = pair_positions.next([](const std::string& w) { return w == "--set"; });
    overrides.emplace(
        at, OverrideText{pair.substr(0, separator), at, {}, false, pair.substr(separator + 1)});
  }
  for (auto& [at, override] : overrides) request.overrides.push_back(std::move(override));
  if (others.empty())
    throw Error(ErrorClass::usage, "no recipe is given, only settings",
                "write mtrain COMMAND RECIPE key=value …");
  return request;
}

std::vector<std::string> joined_pairs(const std::vector<std::string>& arguments) {
  std::vector<std::string> out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--set" && i + 2 < arguments.size()) {
      out.push_back(cat("--set=", arguments[i + 1], kPairSeparator, arguments[i + 2]));
      i += 2;
    } else {
      out.push_back(arguments[i]);
    }
  }
  return out;
}

RecipeRequest recipe_request(const Cli& cli, const RecipeWords& recipe_words) {
  std::vector<std::string> names;
  RecipeRequest request = sorted_words(cli, recipe_words, 1, names);
  request.recipe = names.front();
  MT_USER_CHECK(!is_folder_word(cli, request.recipe), ErrorClass::usage,
                cat(printable(request.recipe), " is a folder, but a recipe is required"),
                cat("to repeat a run use mtrain rerun ", shell_word(request.recipe),
                    ", to show its settings mtrain config show ", shell_word(request.recipe)));
  return request;
}

RecipeRequest recipe_or_run_request(const Cli& cli, const RecipeWords& recipe_words,
                                    std::optional<SavedConfig>& saved) {
  std::vector<std::string> names;
  RecipeRequest request = sorted_words(cli, recipe_words, 1, names);
  request.recipe = names.front();
  saved = open_run(cli, request);
  return request;
}

std::optional<SavedConfig> open_run(const Cli& cli, RecipeRequest& request) {
  if (!is_folder_word(cli, request.recipe)) return std::nullopt;
  const fs::path folder = run_of(request.recipe);
  SavedConfig saved = read_saved_config(request.recipe);
  SavedIdentity identity = identity_of(saved);
  request.recipe += " (its recipe)";
  request.text = saved.resolved;
  request.resolved = true;
  request.directory =
      identity.directory.empty() ? fs::current_path() : fs::path(identity.directory);
  Location written{std::make_shared<Source>(SourceKind::command_line, "the run's folder", ""), 0,
                   0};
  std::vector<OverrideText> own = {
      {cat("run.dir=", override_value_text(Node::string(folder.string()))), 0, written}};
  if (!identity.name.empty())
    own.push_back({cat("run.name=", override_value_text(Node::string(identity.name))), 0, written});
  request.overrides.insert(request.overrides.begin(), own.begin(), own.end());
  return saved;
}

RecipeRequest recipe_request(const Cli& cli, const RecipeWords& recipe_words,
                             const PluginHost& plugins, std::string& key) {
  std::vector<std::string> names;
  RecipeRequest request = sorted_words(cli, recipe_words, 2, names);
  if (names.size() == 1) {
    request.recipe = names[0];
    return request;
  }
  auto folders = search_folders(plugins.folders());
  auto is_recipe = [&](const std::string& word) {
    return word == "-" || is_folder_word(cli, word) || find_recipe(word, folders).has_value();
  };
  auto is_path = [](const std::string& word) {
    return word.find('/') != std::string::npos || word.ends_with(".yaml");
  };
  bool first = is_recipe(names[0]), second = is_recipe(names[1]);
  if (first == second) {  // what looks like a file counts as one, even if it does not exist
    first = is_path(names[0]);
    second = is_path(names[1]);
  }
  if (first == second)
    throw Error(
        ErrorClass::usage,
        cat("which is the recipe: ", printable(names[0], 64), " or ", printable(names[1], 64), "?"),
        "give the recipe as a path, e.g. ./recipes/NAME.yaml, and the setting as section.key");
  request.recipe = names[first ? 0 : 1];
  key = names[first ? 1 : 0];
  return request;
}

std::string_view setting_of_override(std::string_view override) {
  std::string_view key = override.substr(0, override.find('='));
  key.remove_prefix(std::min(key.find_first_not_of("+~"), key.size()));
  return key;
}

bool decides_data(std::string_view setting) {
  const std::string_view section = setting.substr(0, setting.find('.'));
  return section == "dataset" || section == "tokenizer" || setting == "rng.seed" ||
         setting == "model.seq_length";
}

bool decides_weights(std::string_view setting) {
  return setting == "model" || setting == "model.init_from" || setting == "peft" ||
         setting == "peft.init_from" || setting == "objective" || setting == "objective.teacher";
}

Recipe inspect_recipe(Cli& cli, const RecipeRequest& request, const PluginHost& plugins) {
  Recipe recipe = read_recipe(request, plugins);
  if (!recipe.config.root().is_map()) recipe.report.throw_if_errors();
  if (recipe.report.ok()) {
    print_warnings(recipe);
  } else {
    cli.status = recipe.report.exit_status();
    write_standard_error(headline(name(static_cast<ErrorClass>(cli.status)), recipe.report.text()));
  }
  return recipe;
}

void warn_of_unused_sweep(Recipe& recipe) {
  const Node& sweep = recipe.config.composition().sweep;
  if (sweep.is_null()) return;
  recipe.report
      .warning("sweep", "sweep", sweep.loc(),
               "the recipe has a sweep, which runs only with -m; this is one run with the recipe's "
               "own values")
      .fix("add -m to train or check all combinations");
}

void print_warnings(const Recipe& recipe) {
  if (recipe.report.warnings() > 0) write_standard_error(recipe.report.text() + "\n");
}

}  // namespace mtrain
