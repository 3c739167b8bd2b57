// Redistribution: the one op that communicates along a mesh axis, in both directions (the table is
// in placement.h). It changes how a tensor is distributed over ranks, not its values. Stateless;
// for the rank's own thread.
#pragma once
#include "mtrain/autograd/tape.h"
#include "mtrain/dist/mesh.h"
#include "mtrain/tensor/placement.h"

namespace mtrain {

/// Converts this rank's part of a tensor with placement `from` along `axis` to its part with
/// placement `to`. Differentiable: the gradient takes the transition dual(to) -> dual(from).
/// Collective, in forward and backward: all ranks of the axis make the same calls, with or without
/// gradient. An axis of size 1 returns `x` itself. Sums of bf16 and fp16 are computed in float and
/// rounded once by communicators of host memory; NCCL rounds partial sums too. `x` is contiguous
/// and floating. S(d) shards dim d, whose size must be divisible by the axis's size. Throws
/// Error(bug) for a transition that is not in the table, with the reason; Error(config) if a dim is
/// not divisible.
MT_API Tensor redistribute(const Tensor& x, const Axis& axis, Placement from, Placement to);

}  // namespace mtrain
