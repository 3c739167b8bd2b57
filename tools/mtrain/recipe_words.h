// The arguments that name a recipe and its overrides, common to all commands that read a recipe.
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
  std::string first;  // the recipe, unless an override precedes it
  std::vector<std::string> rest;
  std::vector<std::string> files;  // of -f
  std::vector<std::string> pairs;  // of --set, as joined_pairs() makes them
};

/// Adds RECIPE, KEY=VALUE…, -f and --set to a command; its help shows `first` and `doc` for RECIPE.
std::shared_ptr<RecipeWords> add_recipe_words(
    CLI::App& command, const std::string& first = "RECIPE",
    const std::string& doc = "a YAML file, the name of a recipe, or - for standard input");

/// The `doc` for commands that also accept runs.
inline constexpr const char* kRecipeOrRun =
    "a YAML file, the name of a recipe, - for standard input, or a run's folder or checkpoint";

/// Separates the words into overrides, in the order of the command line and with their positions,
/// and up to `most` others, at least one.
RecipeRequest sorted_words(const Cli& cli, const RecipeWords& words, size_t most,
                           std::vector<std::string>& others);

/// These words of the command line, in their order, with their positions.
std::vector<OverrideText> placed_overrides(const Cli& cli, const std::vector<std::string>& words);

/// The recipe and the overrides, each with its position on the command line. Throws Error(usage) if
/// no recipe is given.
RecipeRequest recipe_request(const Cli& cli, const RecipeWords& words);

/// The same for a command that also accepts a run: a folder stands for the resolved recipe of that
/// run or checkpoint, which is put into `saved`.
RecipeRequest recipe_or_run_request(const Cli& cli, const RecipeWords& words,
                                    std::optional<SavedConfig>& saved);
/// If the request names a run's folder or checkpoint, changes it to a request for the recipe that
/// is saved there. Throws Error(checkpoint) for a folder without one.
std::optional<SavedConfig> open_run(const Cli& cli, RecipeRequest& request);

/// The same as recipe_request for a command that also takes the path of a setting. With two
/// words, in either order, the word that is not a recipe is put into `key`. `key` stays empty if
/// there is one word. Throws Error(usage) if both are recipes, or neither.
RecipeRequest recipe_request(const Cli& cli, const RecipeWords& words, const PluginHost& plugins,
                             std::string& key);

/// "dataset.path" of "+dataset.path=x".
std::string_view setting_of_override(std::string_view override);
/// Whether a setting determines the training data: an override of it selects other data than the
/// run's.
bool decides_data(std::string_view setting);
/// The same for the weights that a run reads at its start.
bool decides_weights(std::string_view setting);

/// Reads a recipe in order to show it. An invalid recipe is shown as far as possible: its report
/// goes to standard error and the status becomes that of an invalid configuration. Throws
/// Error(config) if nothing of it can be shown.
Recipe inspect_recipe(Cli& cli, const RecipeRequest& request, const PluginHost& plugins);

/// Adds a warning to the report of a recipe that has a `sweep:` map, for commands without -m, which
/// use the recipe's own values.
void warn_of_unused_sweep(Recipe& recipe);

/// Shows the warnings of a valid recipe.
void print_warnings(const Recipe& recipe);

/// Makes one word of each "--set KEY VALUE", so that a value may look like an option.
std::vector<std::string> joined_pairs(const std::vector<std::string>& arguments);

}  // namespace mtrain
