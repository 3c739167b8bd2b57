// One training run from a loaded recipe, as `train` and `rerun` do it.
#pragma once
#include <functional>

#include "cli.h"
#include "mtrain/train/trainer.h"

namespace mtrain {

/// Trains in the recipe's run folder; the exit status. `before_start` sees the trainer once everything is
/// built.
int run_training(const Cli& cli, const Recipe& recipe, PluginHost& plugins,
                 const std::function<void(const Trainer&)>& before_start = {});

}  // namespace mtrain
