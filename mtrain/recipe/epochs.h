// train.epochs: the length of a run said as passes over the training data. How many steps that is
// depends on the data, so it is found once, before ranks start, and stands in the recipe from then
// on. Stateless.
#pragma once
#include "mtrain/comm/communicator.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// Whether the recipe gives train.epochs and nobody has counted the steps yet: train.steps is then
/// 0 and means nothing.
MT_API bool counts_epochs(const Recipe& recipe);

/// Of train.epochs and train.steps, the one of a file or an earlier argument whose place the other
/// takes: "train.steps=4 (r.yaml:2:3)"; empty where only one is given.
MT_API std::string replaced_length(const Recipe& recipe);

/// Refuses train.steps=0 in place of train.epochs: nothing would be trained.
MT_API void check_length(Recipe& recipe);

/// Where the recipe gives train.epochs: opens its training data, puts the number of steps into its
/// settings and its configuration, with shares of it such as scheduler.warmup_steps=5%, and holds
/// it against the rules again. Throws Error(config) for data without an end of one epoch.
MT_API void settle_epochs(Recipe& recipe, PluginHost& plugins);
/// Collective: the same with the first rank's count on all ranks; the others open nothing.
MT_API void settle_epochs(Recipe& recipe, PluginHost& plugins, Communicator& ranks);

}  // namespace mtrain
