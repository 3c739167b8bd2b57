// Uploads a micro-batch from host memory to the input tensors of a model on one rank. Stateless
// functions; for the rank's thread.
#pragma once
#include "mtrain/data/loader.h"
#include "mtrain/nn/model.h"

namespace mtrain {

/// Uploads one micro-batch. `with_targets` false: the model returns logits.
MT_API ModelInput to_device(ExecutionContext& ctx, const MicroBatch& batch,
                            bool with_targets = true);
/// Uploads this rank's part of a micro-batch of its data-parallel group, and sets first_token and
/// own_tokens of `ctx` to these tokens.
MT_API ModelInput own_part(ExecutionContext& ctx, const MicroBatch& batch,
                           const ParallelContext& parallel);

}  // namespace mtrain
