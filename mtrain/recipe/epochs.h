// train.epochs: the length of a run in passes over the training data. The number of steps depends
// on the data, so it is computed once, before ranks start, and then stored in the recipe. Stateless
// functions; call on one thread.
#pragma once
#include "mtrain/comm/communicator.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

inline constexpr const char* kStepsSetting = "train.steps";

/// True if the recipe sets train.epochs and the number of steps is not computed yet; until then
/// train.steps is 0.
MT_API bool counts_epochs(const Recipe& recipe);

/// If both train.epochs and train.steps are given, the later one replaces the other: returns the
/// replaced one, "train.steps=4 (r.yaml:2:3)". Empty if only one is given.
MT_API std::string replaced_length(const Recipe& recipe);

/// Refuses train.steps=0 that replaces train.epochs, since nothing would be trained.
MT_API void check_length(Recipe& recipe);

/// If the recipe sets train.epochs: opens its training data, computes the number of steps, stores
/// it in settings and configuration, including shares of it such as scheduler.warmup_steps=5%, and
/// checks the rules again. Throws Error(config) for data without a defined epoch.
MT_API void resolve_epochs(Recipe& recipe, PluginHost& plugins);
/// Collective: the same with rank 0's result on all ranks; only rank 0 opens the data.
MT_API void resolve_epochs(Recipe& recipe, PluginHost& plugins, Communicator& ranks);

}  // namespace mtrain
