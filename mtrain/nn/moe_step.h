// What mixtures of experts do once per step: add up over all ranks of the stage what their routers
// have chosen, move their biases, and tell how balanced they are. Stateless.
#pragma once
#include <span>
#include <vector>

#include "mtrain/nn/model.h"
#include "mtrain/nn/moe.h"

namespace mtrain {

/// Ends a step of these blocks, the stage's own. Collective over the ranks of the stage, with one
/// message per axis. `updated`: false where the step was skipped, so that nothing moves. Gives
///   moe_aux_loss   what the balancing losses came to, coefficients included, summed over the
///   blocks moe_z_loss     the same of the loss on large logits moe_max_load   the most tokens of
///   an expert, in units of an equal share
MT_API std::vector<StepFigure> end_moe_step(std::span<Moe* const> blocks,
                                            const ParallelContext& parallel, bool updated);

}  // namespace mtrain
