// The sweeps of `train -m` and `check -m`: every trial is validated before the first one runs.
#pragma once
#include "cli.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// Validates every trial; `list` prints one line for each. The status is that of an invalid
/// configuration if a trial is invalid.
void check_sweep(Cli& cli, const RecipeRequest& request, bool list);

/// Trains the trials one after another, each in its own folder (sweep_folders()). A trial that is
/// invalid or fails ends the sweep, or, with `keep_going`, is reported and skipped. The status is
/// that of the first failure.
void train_sweep(Cli& cli, const RecipeRequest& request, bool keep_going);

}  // namespace mtrain
