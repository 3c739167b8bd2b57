// Norms of the queries and keys of an attention layer, before their rotary positions. A value that
// holds references to parameters: the constructor adds them, a call puts an op on the tape. For the
// rank's own thread. Dimensions: H heads, G key/value groups, E head dim.
#pragma once
#include "mtrain/autograd/projection_ops.h"
#include "mtrain/nn/head_shard.h"
#include "mtrain/nn/scope.h"

namespace mtrain {

struct QkNormOptions {
  HeadNormForm::Rows rows = HeadNormForm::Rows::head;
  bool layer = false, bias = false;  // LayerNorm, not RMSNorm; with a bias
  float eps = 1e-6f;
  bool zero_centered = false;  // the factor is 1 + weight. REQUIRES: not Rows::all_heads
};

class MT_API QkNorm {
 public:
  /// Adds q_norm and k_norm to the scope: weights [E] for all heads, [H, E] and [G, E] with
  /// Rows::own_head, [H * E] and [G * E] with Rows::all_heads. A tensor-parallel rank holds the
  /// weights of its heads, or all weights if heads share them.
  QkNorm(const Scope& scope, const HeadLayout& whole, const HeadShard& heads,
         const QkNormOptions& options);
  /// qkv [T, width of this rank's heads], normalized in place.
  Tensor operator()(Tensor&& qkv_TN) const;

 private:
  struct Weights {
    Parameter* weight;
    Parameter* bias;
  };
  Weights add(const Scope& scope, bool keys, const HeadShard& shard, int64_t heads,
              const QkNormOptions& options) const;
  HeadLayout layout_;  // of this rank
  HeadNormForm form_;
  Weights queries_, keys_;
};

}  // namespace mtrain
