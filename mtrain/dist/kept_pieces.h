// Shards a tensor that all ranks of an axis hold: between forward and backward, each rank keeps one
// piece of it. Stateless; for the rank's own thread.
#pragma once
#include "mtrain/autograd/ops.h"
#include "mtrain/dist/mesh.h"

namespace mtrain {

/// For recompute(): each rank of the axis keeps one of axis.size() equal pieces of the input (the
/// last ones may be padded), and backward all-gathers them. REQUIRES: the ranks have the same
/// tensor, contiguous, and run backward in the same order. Refers to the axis. Collective in
/// backward.
MT_API KeepInput keep_in_pieces(const Axis& axis);

}  // namespace mtrain
