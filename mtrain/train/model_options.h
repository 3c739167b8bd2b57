// Converts the settings of a recipe to options of nn's layers: what is kept for backward, and which
// products are quantized. Stateless functions; safe from any thread.
#pragma once
#include "mtrain/nn/block_plan.h"
#include "mtrain/nn/parallel.h"
#include "mtrain/nn/precision.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// What the blocks recompute or offload: model.recompute* and offload.layers. `parallel` may be
/// null; the plan refers to its axes.
BlockPlan block_plan(const Settings& settings, const ParallelContext* parallel);
/// Which products are in FP8 or FP4, and how: mixed_precision.*.
PrecisionOptions precision_options(const Recipe& recipe);

}  // namespace mtrain
