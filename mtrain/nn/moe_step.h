// The work of mixtures of experts at the end of a step: sums the statistics of routers over the
// ranks of the stage, updates the routers' biases and reports metrics. Stateless; for the rank's
// own thread.
#pragma once
#include <span>
#include <vector>

#include "mtrain/nn/model.h"
#include "mtrain/nn/moe.h"

namespace mtrain {

/// Ends a step of `blocks`, the blocks of this stage with experts. Collective over the ranks of the
/// stage, with one all-reduce per axis. `updated`: false if the update was skipped; then biases and
/// loads do not change. Returns
/// - moe_aux_loss: the balancing losses with their coefficients, mean over tokens, sum over blocks
/// - moe_z_loss: the same for the z loss
/// - moe_max_load: the most selections of one expert in any block, relative to an equal share
MT_API std::vector<StepFigure> end_moe_step(std::span<Moe* const> blocks,
                                            const ParallelContext& parallel, bool updated);

}  // namespace mtrain
