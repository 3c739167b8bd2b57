// Linear layers at the boundaries of a tensor-parallel region with sequence parallelism, overlapped
// with its communication: the ranks exchange shards of the stream as messages, and each shard is
// computed on while others are in transfer (Wang et al. 2023, "Overlap communication with dependent
// computation via decomposition", ASPLOS). Only rows are split, so every element is the same sum in
// the same order as with one collective and one product: the result is bit-identical. For the
// rank's own thread; the axis must outlive the tape.
#pragma once
#include <span>
#include <vector>

#include "mtrain/autograd/coded_weight.h"
#include "mtrain/autograd/quantized_products.h"
#include "mtrain/autograd/tape.h"
#include "mtrain/dist/mesh.h"

namespace mtrain {

/// A column-parallel layer: w [N,D], and b [N] or undefined. `quantized`: its products in a
/// low-precision type; null: none; not owned. `coded`: the quantized weight of which w holds the
/// codes; null: w is not quantized; not owned.
struct LinearWeights {
  Tensor w, b;
  const QuantizedProducts* quantized = nullptr;
  const CodedWeight* coded = nullptr;
};

/// y[T,N] = x[T,D] · w[N,D]ᵀ + b[N] + residual[T,N].
MT_API Tensor linear(const Tensor& x_TD, const LinearWeights& layer,
                     const Tensor& residual_TN = {});

/// Whether a matrix product may be split into products of `rows` rows each without changing bits.
/// From this size on, backends sum over K in one order for any number of rows; smaller products may
/// use another order. `terms` is K.
MT_API bool rows_may_be_split(int64_t rows, int64_t outputs, int64_t terms);

/// The result of gathered_linear().
struct GatheredProducts {
  Tensor whole_TD;        // x of all ranks
  std::vector<Tensor> y;  // [T,N] each
};
/// y_i = x · w_iᵀ + b_i, where this rank has the shard x_TD [T/n, D] of x: S(0) -> R, followed by
/// the products. Backward sends shards of the gradient of x while others are computed, and computes
/// the gradients of the matrices while transfers are in flight. Only these products may read
/// `whole_TD` on the tape. Collective, in forward and backward. Sends as much as an all-gather.
MT_API GatheredProducts gathered_linear(const Tensor& x_TD, const Axis& axis,
                                        std::span<const LinearWeights> weights);

/// This rank's shard [T/n, N] of the sum over ranks of x · wᵀ, x [T,K], w [N,K]: a product followed
/// by P -> S(0). Collective, in forward and backward. Sends as much as a reduce-scatter.
MT_API Tensor linear_scattered(const Tensor& x_TK, const Axis& axis, const Tensor& w_NK);

}  // namespace mtrain
