// The words by which a command line says a recipe and what to change in it; the same for every
// command that reads one.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/record/saved_config.h"

namespace mtrain {

struct RecipeWords {
  std::string first;  // the recipe, unless an override stands before it
  std::vector<std::string> rest;
  std::vector<std::string> files;  // of -f
  std::vector<std::string> pairs;  // of --set, as joined_pairs() makes them
};

/// Adds RECIPE, KEY=VALUE…, -f and --set to a command; `first` and `doc` are what its help shows
/// for the former.
std::shared_ptr<RecipeWords> add_recipe_words(
    CLI::App& command, const std::string& first = "RECIPE",
    const std::string& doc = "a YAML file, the name of a recipe, or - for standard input");

/// What `add_recipe_words` shows for commands that also look at runs.
inline constexpr const char* kRecipeOrRun =
    "a YAML file, the name of a recipe, - for standard input, or a run's folder or checkpoint";

/// Parts the words into overrides, in the order of the command line and each with its place there,
/// and up to `most` others, at least one.
RecipeRequest sorted_words(const Cli& cli, const RecipeWords& words, size_t most,
                           std::vector<std::string>& others);

/// The recipe and the overrides, each with its place on the command line. Throws Error(usage) when
/// no recipe is said.
RecipeRequest recipe_request(const Cli& cli, const RecipeWords& words);

/// The same for a command that may also be given a run: a folder stands for the resolved recipe
/// that the run or checkpoint keeps, which is put into `saved`.
RecipeRequest recipe_or_run_request(const Cli& cli, const RecipeWords& words,
                                    std::optional<SavedConfig>& saved);
/// Where the request names a run's folder or checkpoint: makes it a request for the recipe that is
/// kept there. Throws Error(checkpoint) for a folder that keeps none.
std::optional<SavedConfig> open_run(const Cli& cli, RecipeRequest& request);

/// The same as recipe_request for a command that also takes the path of a setting: of two words,
/// the one that is no recipe is put into `key`, whichever stands first. `key` stays empty when
/// there is one word. Throws Error(usage) when both are recipes, or neither.
RecipeRequest recipe_request(const Cli& cli, const RecipeWords& words, const PluginHost& plugins,
                             std::string& key);

/// "dataset.path" of "+dataset.path=x".
std::string_view setting_of_override(std::string_view override);
/// Whether a setting decides what is trained on: who sets it asks for other data than a run's.
bool decides_data(std::string_view setting);

/// Reads a recipe to look at it. One with faults is shown as far as it goes: its report goes to
/// standard error and the status becomes that of a faulty configuration. Throws Error(config) when
/// nothing of it can be shown.
Recipe inspect_recipe(Cli& cli, const RecipeRequest& request, const PluginHost& plugins);

/// Adds a warning to the report of a recipe that has a `sweep:` map, for commands that were not
/// given -m and use its own values.
void warn_of_unused_sweep(Recipe& recipe);

/// Shows the warnings of a recipe that is in order.
void print_warnings(const Cli& cli, const Recipe& recipe);

/// Makes one word of each "--set KEY VALUE", so that a value may look like an option.
std::vector<std::string> joined_pairs(const std::vector<std::string>& arguments);

}  // namespace mtrain
