// The plain form of each fused op: a composition of smaller ops that says what the op computes. A
// backend that lacks the fused kernels runs it, and the tests in tests/contract compare the fused
// kernels with it. Computed in float and rounded once, like the fused kernels; gradients come from
// the tape. The kernels on which compositions are built have none themselves: add, mul, unary,
// cast, copy_blocks, column_sum, embedding, gather_sum and row_dots. Shapes and arguments as in
// ops.h. For the rank's thread.
#pragma once
#include <utility>

#include "mtrain/autograd/ops.h"
#include "mtrain/autograd/projection_ops.h"

namespace mtrain::plain {

/// gelu(gate) * up.
Tensor gelu_mul(const Tensor& gate_TF, const Tensor& up_TF, GeluKind kind);
/// max(x, 0), or its product with itself.
Tensor relu(const Tensor& x, ReluKind kind);
/// factor * x, or cap * tanh(factor / cap * x).
Tensor map_logits(const Tensor& x, const LogitMap& map);
/// gate * sigmoid(gate) * up.
Tensor silu_mul(const Tensor& gate_TF, const Tensor& up_TF);
/// x * Φ(x), or x * sigmoid(2 sqrt(2/π) (x + 0.044715 x³)).
Tensor gelu(const Tensor& x, GeluKind kind);
/// x * rsqrt(mean(x * x) + eps) * (w + offset).
Tensor rms_norm(const Tensor& x_TD, const Tensor& w_D, float eps, float offset);
/// (x - mean(x)) * rsqrt(mean((x - mean(x))²) + eps) * (w + offset) + b.
Tensor layer_norm(const Tensor& x_TD, const Tensor& w_D, const Tensor& b_D, float eps,
                  float offset);
/// x * factors; a factor is 1/(1-p), or 0 if the element is dropped. `tokens`: the tokens that the
/// rows of x represent.
Tensor dropout(const Tensor& x_TD, float p, uint64_t name_key, const std::vector<RowRange>& tokens);
/// rms_norm or layer_norm of the heads of queries and keys, put together with the values.
Tensor head_norm(const Tensor& qkv, const HeadLayout& layout, const HeadNormForm& form,
                 const HeadNormWeights& weights);
/// sigmoid(gate) * x.
Tensor sigmoid_mul(const Tensor& gate_TF, const Tensor& x_TF);
/// Rotates the heads of qkv in place: (a, b) becomes (a cos - b sin, b cos + a sin). Adds no node
/// to the tape.
void rotate(const Tensor& qkv, const HeadLayout& layout, const RopeTable& table,
            const Tensor& positions_T, bool inverse);

}  // namespace mtrain::plain

namespace mtrain {

/// Runs an op by its fused kernels if `fused` (the backend has them all), otherwise by its member
///   Tensor composition(const Tensor& …) const;   // same inputs as forward()
/// In both cases op.placed() gives the placement of the result.
template <class Op, class... Inputs>
Tensor apply_or_compose(bool fused, Op op, const Inputs&... in) {
  if (fused) return apply(std::move(op), in...);
  ExecutionContext& ctx = std::get<0>(std::forward_as_tuple(in...)).context();
  MaybePlacement placed;
  if (ctx.tracked_axis) placed = op.placed(in...);
  struct Untracked {
    ExecutionContext& ctx;
    std::optional<PlacementAxis> axis = std::exchange(ctx.tracked_axis, std::nullopt);
    ~Untracked() { ctx.tracked_axis = axis; }
  } untyped{ctx};
  Tensor y = op.composition(in...);
  y.set_placement(placed);
  return y;
}

}  // namespace mtrain
