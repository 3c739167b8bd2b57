// One training run from a loaded recipe, as `train` and `rerun` do it.
#pragma once
#include <functional>

#include "cli.h"
#include "mtrain/train/trainer.h"

namespace mtrain {

/// Trains in the recipe's run folder; the exit status. `before_start` sees the trainer once everything is
/// built. Settles what the recipe leaves to the machine (run_job).
int run_training(const Cli& cli, Recipe& recipe, PluginHost& plugins,
                 const std::function<void(const Trainer&)>& before_start = {});

}  // namespace mtrain
