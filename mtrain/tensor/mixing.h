// Propagation rules of placements (as in DTensor's sharding propagation): which placements an op
// may combine, and the placement of its result along one mesh axis (R, I, S, P; placement.h). A
// forgotten reduction shows as a pair of placements that no rule allows. A rule is correct if the
// ranks' results have the stated placement and, given a gradient with the dual placement of the
// result, the gradient of each input has the dual placement of that input. A test derives the whole
// table from this definition. Stateless; thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "mtrain/tensor/placement.h"

namespace mtrain {

/// Ops, grouped by how they treat partial sums and shards.
enum class PlacementRule : uint8_t {
  linear,     // y[T,N] = x[T,D] w[N,D]^T: inputs x, w
  add,        // y = a + b
  bias,       // y[T,N] = x[T,N] + b[N] in every row: inputs x, b
  multiply,   // y = a * b, element by element
  pointwise,  // y = f(x), or of several inputs of one shape; f is not linear: gelu, silu_mul
  norm,       // y[T,D] = w[D] * x / norm of each row: inputs x, w
};
MT_API const char* name(PlacementRule op);

/// One rule. Where any dim is allowed (add, multiply, pointwise), S(0) stands for every dim, which
/// must be the same in all inputs.
struct MixRule {
  PlacementRule op;
  std::array<Placement, 2> inputs;
  Placement result;
};
MT_API std::span<const MixRule> mix_rules();

/// The placement of the result. Two inputs; pointwise takes one or more. Throws Error(bug) that
/// names the placements, why they cannot be combined, which one to redistribute, and what is
/// allowed.
MT_API Placement mix(PlacementRule op, std::span<const Placement> inputs);

}  // namespace mtrain
