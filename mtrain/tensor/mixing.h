// Which placements an op may combine, and how its result is placed: R, I, S and P are a type system
// for one mesh axis, and these are its rules. A forgotten reduction is a pair of letters that no
// rule allows. A rule holds when the ranks' results are placed as it says and, from a gradient
// placed as the dual of the result, the ranks' gradients of each input are placed as that input's
// dual; the test derives the whole table from that. Stateless.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "mtrain/tensor/placement.h"

namespace mtrain {

/// Ops by what they do to sums and pieces.
enum class PlacementRule : uint8_t {
  linear,     // y[T,N] = x[T,D] w[N,D]^T: inputs x, w
  add,        // y = a + b
  bias,       // y[T,N] = x[T,N] + b[N] in every row: inputs x, b
  multiply,   // y = a * b, element by element
  pointwise,  // y = f(x), or of several inputs of one shape, f not linear: gelu, silu_mul
  norm,       // y[T,D] = w[D] * x / norm of each row: inputs x, w
};
MT_API const char* name(PlacementRule op);

/// One rule. Where every dim is allowed (add, multiply, pointwise), S(0) stands for all, the same
/// in all inputs.
struct MixRule {
  PlacementRule op;
  std::array<Placement, 2> inputs;
  Placement result;
};
MT_API std::span<const MixRule> mix_rules();

/// The placement of the result. Two inputs; pointwise takes one or more. Throws Error(bug) naming
/// the placements, why they do not mix, what to redistribute, and what is allowed.
MT_API Placement mix(PlacementRule op, std::span<const Placement> inputs);

}  // namespace mtrain
