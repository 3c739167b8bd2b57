// Differentiable ops between the projections of attention and its products: norms of queries and
// keys, clamping, and a gate of the output. Conventions as in ops.h.
#pragma once
#include <functional>

#include "mtrain/autograd/ops.h"

namespace mtrain {

/// How heads of queries and keys are normalized.
struct HeadNormForm {
  enum class Rows : uint8_t {
    head,      // each head by itself; all of them have the same weights [E]
    own_head,  // each head by itself, with weights of its own: [H * E] and [G * E]
    all_heads  // all query heads of a token together, all key heads of a token together
  };
  Rows rows = Rows::head;
  bool layer = false;  // LayerNorm, not RMSNorm
  float eps = 1e-6f;
  float offset = 0;  // w + offset in place of w, with `head` and `own_head`
  /// For `all_heads` if heads are sharded over ranks: `join` sums float [2, T] over these ranks, in
  /// place. Collective; called in forward and in backward.
  std::function<void(const Tensor& sums_2T)> join = {};
  HeadLayout whole = {};    // with `join`: the layout of all ranks together
  bool counts_keys = true;  // with `join`: false on a rank whose key heads are copies that
                            // another rank contributes to the sum
};
/// Weight and bias of the queries' norm and of the keys'; a bias may be undefined.
struct HeadNormWeights {
  Tensor q, q_bias, k, k_bias;
};

/// Normalizes query and key heads of qkv [T, layout.width()]; values do not change. Takes over the
/// tensor and normalizes it in place; only a copy of the queries and keys is kept for backward. All
/// weights have the dtype of qkv.
MT_API Tensor head_norm(Tensor&& qkv, const HeadLayout& layout, const HeadNormForm& form,
                        const HeadNormWeights& weights);

/// y = min(max(x, -limit), limit). The gradient is 0 where |x| > limit. Takes over the tensor and
/// limits it in place; one bit per element is kept for backward.
MT_API Tensor clamp(Tensor&& x, float limit);

/// y = sigmoid(gate) * x.
MT_API Tensor sigmoid_mul(const Tensor& gate_TF, const Tensor& x_TF);

}  // namespace mtrain
