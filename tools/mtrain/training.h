// One training run from a loaded recipe, for `train` and `rerun`.
#pragma once
#include <functional>
#include <optional>

#include "cli.h"
#include "mtrain/train/trainer.h"

namespace mtrain {

struct TrainingOptions {
  std::function<void(const Trainer&)> before_start =
      {};  // called on rank 0 before the first step, if there is one
  std::optional<int64_t> until =
      {};  // stop after this step with a checkpoint, whatever train.steps says
};

/// Trains in the recipe's run folder and returns the exit status. Resolves the settings that depend
/// on the machine (run_job).
int run_training(const Cli& cli, Recipe& recipe, PluginHost& plugins,
                 const TrainingOptions& options = {});

}  // namespace mtrain
