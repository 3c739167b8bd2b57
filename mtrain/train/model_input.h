// From a batch in host memory to the tensors that a model reads on one rank. Stateless.
#pragma once
#include "mtrain/data/loader.h"
#include "mtrain/nn/model.h"

namespace mtrain {

/// Uploads one micro-batch. `with_targets` false: the model is asked for logits.
MT_API ModelInput to_device(Run& run, const Batch& batch, bool with_targets = true);
/// Uploads what this rank has of a micro-batch of its data-parallel group, and tells the run which
/// tokens those are.
MT_API ModelInput own_part(Run& run, const Batch& batch, const ParallelContext& parallel);

}  // namespace mtrain
