// Linear layers at the edges of a tensor-parallel region under sequence parallelism, with their
// transfer behind them: the ranks' pieces of the stream travel as messages, and each piece is
// worked on while the others are under way (the ring exchange of Wang et al. 2023, "Overlap
// communication with dependent computation via decomposition", ASPLOS). Only rows are cut, so every
// element is the same sum in the same order as with one collective and one product: no bit changes.
// For the rank's own thread; the axis outlives the tape.
#pragma once
#include <span>
#include <vector>

#include "mtrain/autograd/quantized_products.h"
#include "mtrain/autograd/tape.h"
#include "mtrain/dist/mesh.h"

namespace mtrain {

/// A column-parallel layer: w [N,D], and b [N] or undefined; how its products are in a
/// low-precision type, or null.
struct LinearWeights {
  Tensor w, b;
  const QuantizedProducts* quantized = nullptr;
};

/// Whether a product of `rows` rows may be one of several that make a larger one: backends add up a
/// product's terms in one order from this size on, whatever the number of rows; smaller ones may
/// take another way.
MT_API bool rows_may_be_cut(int64_t rows, int64_t outputs, int64_t terms);

/// What gathered_linear() gives.
struct GatheredProducts {
  Tensor whole_TD;        // x of all ranks
  std::vector<Tensor> y;  // [T,N] each
};
/// y_i = x · w_iᵀ + b_i of the whole of x, of which each rank has the piece x_TD[T/n, D]: S(0) ->
/// R, and products. Backward sends pieces of the gradient of x while the others are computed, and
/// computes the gradients of the matrices behind them. Nothing but these products may read
/// `whole_TD` on the tape. Collective, forwards and backwards. Sends what an all-gather sends.
MT_API GatheredProducts gathered_linear(const Tensor& x_TD, const Axis& axis,
                                        std::span<const LinearWeights> weights);

/// This rank's piece [T/n, N] of the sum over ranks of x · wᵀ: a product, and P -> S(0).
/// Collective, forwards and backwards. Sends what a reduce-scatter sends.
MT_API Tensor linear_scattered(const Tensor& x_TK, const Axis& axis, const Tensor& w_NK);

}  // namespace mtrain
