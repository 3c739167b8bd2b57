#include "recipe_words.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "mtrain/base/error.h"

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

std::shared_ptr<RecipeWords> add_recipe_words(CLI::App& command) {
  auto words = std::make_shared<RecipeWords>();
  command.add_option("recipe", words->first, "a YAML file, the name of a recipe, or - for standard input")
      ->required()
      ->type_name("RECIPE");
  command.add_option("overrides", words->rest, "settings to change: key=value")->type_name("KEY=VALUE");
  return words;
}

RecipeRequest recipe_request(const Cli& cli, const RecipeWords& said) {
  RecipeRequest request;
  Numbering numbered(cli);
  std::vector<std::string> words = said.rest;
  words.insert(words.begin(), said.first);
  bool found = false;
  for (const auto& word : words) {
    bool recipe = !found && (!looks_like_override(word) || is_file(word));
    if (recipe)
      request.recipe = word;
    else
      request.overrides.push_back(numbered(word));
    found = found || recipe;
  }
  if (!found)
    throw Error(ErrorClass::usage, "no recipe is said, only settings",
                "write mtrain COMMAND RECIPE key=value …");
  return request;
}

void print_warnings(const Cli& cli, const Recipe& recipe) {
  if (!cli.quiet && recipe.report.warnings() > 0) std::cerr << recipe.report.text() << '\n';
}

}  // namespace mtrain
