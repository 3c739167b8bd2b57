// Uploads a micro-batch from host memory to the input tensors of a model on one rank. Stateless
// functions; for the rank's thread.
#pragma once
#include "mtrain/data/loader.h"
#include "mtrain/nn/model.h"

namespace mtrain {

/// Uploads one micro-batch. `with_targets` false: the model returns logits.
MT_API ModelInput to_device(ExecutionContext& ctx, const MicroBatch& batch,
                            bool with_targets = true);
/// The tokens of a micro-batch that this rank of cp holds; null: all of them.
MT_API std::shared_ptr<const ContextSlice> context_slice(const MicroBatch& batch,
                                                         const ParallelContext& parallel);
/// Uploads this rank's part of a micro-batch of its data-parallel group, and sets first_token and
/// own_tokens of `ctx` to these tokens. `depths`: of multi-token prediction (ModelInput::ahead);
/// the tokens are shifted before they are sharded, so that no rank needs another one's.
MT_API ModelInput own_part(ExecutionContext& ctx, const MicroBatch& batch,
                           const ParallelContext& parallel, int64_t depths = 0);

}  // namespace mtrain
