// train.epochs: the length of a run in passes over the training data. The number of steps depends
// on the data, so it is computed once, before ranks start, and then stored in the recipe. Stateless
// functions; call on one thread.
#pragma once
#include "mtrain/comm/communicator.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// True when the recipe sets train.epochs and the steps are not computed yet; then train.steps is 0
/// and has no meaning.
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
