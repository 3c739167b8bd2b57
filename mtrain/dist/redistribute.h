// Redistribution: the one op that communicates along a mesh axis, in both directions (placement.h
// has the table). It is the identity on the tensor that the ranks hold together; only who holds
// what of it changes. Stateless.
#pragma once
#include "mtrain/autograd/tape.h"
#include "mtrain/dist/mesh.h"
#include "mtrain/tensor/placement.h"

namespace mtrain {

/// What this rank holds of a tensor placed `from` along `axis`, to what it holds of it placed `to`.
/// Differentiable: the gradient takes the edge dual(to) -> dual(from). Collective, forwards and
/// backwards: all ranks of the axis call it alike, and want or do not want the gradient alike. An
/// axis of size 1 gives `x` itself. Sums of bf16 and fp16 are taken in float and rounded once. `x`
/// is contiguous, floating, in host memory; S(d) cuts dim d, whose size the axis must divide.
/// Throws Error(bug) for an edge that is not in the table, with the reason; Error(config) where a
/// dim does not divide.
MT_API Tensor redistribute(const Tensor& x, const Axis& axis, Placement from, Placement to);

}  // namespace mtrain
