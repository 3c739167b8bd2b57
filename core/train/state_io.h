// The way of a training state to and from a checkpoint store. Tensors are staged in host memory, so a save sees one moment.
#pragma once
#include <vector>

#include "mtrain/checkpoint/store.h"
#include "mtrain/nn/parameter.h"
#include "mtrain/optim/optimizer_state.h"
#include "mtrain/train/train_state.h"

namespace mtrain {

/// Copies masters (as "<parameter>") and optimizer state (as "<parameter>.<state name>") to the host and saves them.
MT_API SaveResult save_state(CheckpointStore& store, ParamList& parameters, OptimizerState* optimizer,
                             const CheckpointMeta& meta);
/// Fills masters, values and, unless null, optimizer state from a step. Error(checkpoint) names the first tensor that is
/// missing or of another shape.
MT_API void load_state(const CheckpointStore& store, int64_t step, ParamList& parameters, OptimizerState* optimizer);

}  // namespace mtrain
