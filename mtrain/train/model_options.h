// From the settings of a recipe to the options that the layers of nn take: what is kept for
// backward, and which products are quantized. Stateless.
#pragma once
#include "mtrain/nn/block_plan.h"
#include "mtrain/nn/precision.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// What the blocks recompute or offload: model.recompute* and offload.layers.
BlockPlan block_plan(const Settings& settings);
/// Which products are in FP8 or FP4, and how: mixed_precision.*.
PrecisionOptions precision_options(const Recipe& recipe);

}  // namespace mtrain
