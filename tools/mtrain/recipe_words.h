// The words by which a command line says a recipe and what to change in it; the same for every command that
// reads one.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cli.h"
#include "mtrain/train/recipe.h"

namespace mtrain {

struct RecipeWords {
  std::string first;  // the recipe, unless an override stands before it
  std::vector<std::string> rest;
};

/// Adds RECIPE and KEY=VALUE… to a command.
std::shared_ptr<RecipeWords> add_recipe_words(CLI::App& command);

/// The recipe and the overrides, each with its place on the command line. Throws Error(usage) when no recipe
/// is said.
RecipeRequest recipe_request(const Cli& cli, const RecipeWords& words);

/// Shows the warnings of a recipe that is in order.
void print_warnings(const Cli& cli, const Recipe& recipe);

}  // namespace mtrain
