#include "recipe_words.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "mtrain/base/error.h"
#include "mtrain/train/search_path.h"

namespace mtrain {
namespace {

/// The overrides among the words, numbered as they stand on the command line.
class Numbering {
 public:
  explicit Numbering(const Cli& cli) : words_(cli.words) {}
  OverrideText operator()(const std::string& text) {
    while (at_ < words_.size() && words_[at_] != text) ++at_;
    return {text, static_cast<int>(at_ < words_.size() ? ++at_ : 0)};
  }

 private:
  const std::vector<std::string>& words_;
  size_t at_ = 0;
};

bool is_file(const std::string& word) {
  std::error_code ignored;
  return fs::is_regular_file(word, ignored);
}

}  // namespace

std::shared_ptr<RecipeWords> add_recipe_words(CLI::App& command, const std::string& first) {
  auto words = std::make_shared<RecipeWords>();
  command.add_option("recipe", words->first, "a YAML file, the name of a recipe, or - for standard input")
      ->required()
      ->type_name(first);
  command.add_option("overrides", words->rest, "settings to change: key=value")->type_name("KEY=VALUE");
  return words;
}

RecipeRequest sorted_words(const Cli& cli, const RecipeWords& said, size_t most,
                           std::vector<std::string>& others) {
  RecipeRequest request;
  Numbering numbered(cli);
  std::vector<std::string> words = said.rest;
  words.insert(words.begin(), said.first);
  for (const auto& word : words) {
    bool other = others.size() < most && (!looks_like_override(word) || is_file(word));
    if (other)
      others.push_back(word);
    else
      request.overrides.push_back(numbered(word));
  }
  if (others.empty())
    throw Error(ErrorClass::usage, "no recipe is said, only settings",
                "write mtrain COMMAND RECIPE key=value …");
  return request;
}

RecipeRequest recipe_request(const Cli& cli, const RecipeWords& said) {
  std::vector<std::string> names;
  RecipeRequest request = sorted_words(cli, said, 1, names);
  request.recipe = names.front();
  return request;
}

RecipeRequest recipe_request(const Cli& cli, const RecipeWords& said, const PluginHost& plugins,
                             std::string& key) {
  std::vector<std::string> names;
  RecipeRequest request = sorted_words(cli, said, 2, names);
  if (names.size() == 1) {
    request.recipe = names[0];
    return request;
  }
  auto folders = search_folders(plugins.folders());
  auto is_recipe = [&](const std::string& word) {
    return word == "-" || find_recipe(word, folders).has_value();
  };
  auto is_path = [](const std::string& word) {
    return word.find('/') != std::string::npos || word.ends_with(".yaml");
  };
  bool first = is_recipe(names[0]), second = is_recipe(names[1]);
  if (first == second) {  // what looks like a file is one, also when it is not there
    first = is_path(names[0]);
    second = is_path(names[1]);
  }
  if (first == second)
    throw Error(ErrorClass::usage,
                cat("which is the recipe: ", printable(names[0], 64), " or ", printable(names[1], 64), "?"),
                "say the recipe as a path, e.g. ./recipes/NAME.yaml, and the setting as section.key");
  request.recipe = names[first ? 0 : 1];
  key = names[first ? 1 : 0];
  return request;
}

Recipe inspect_recipe(Cli& cli, const RecipeRequest& request, const PluginHost& plugins) {
  Recipe recipe = read_recipe(request, plugins);
  if (!recipe.config.root().is_map()) recipe.report.throw_if_errors();
  if (recipe.report.ok()) {
    print_warnings(cli, recipe);
  } else {
    std::cerr << "mtrain: error[config]: " << recipe.report.text() << '\n';
    cli.status = static_cast<int>(ErrorClass::config);
  }
  return recipe;
}

void print_warnings(const Cli& cli, const Recipe& recipe) {
  if (!cli.quiet && recipe.report.warnings() > 0) std::cerr << recipe.report.text() << '\n';
}

}  // namespace mtrain
