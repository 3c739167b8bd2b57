// Self-attention of transformers. A value that holds references to parameters: the constructor adds
// the parameters, a call puts ops on the tape. For the rank's own thread. Dimensions: T tokens, D
// embed, H heads, G key/value groups, E head dim.
#pragma once
#include <optional>

#include "mtrain/nn/attention_core.h"

namespace mtrain {

/// Self-attention with one fused projection that holds queries, keys and values group by group.
/// Norms of queries and keys, clamping (AttentionOptions::clip) and rotary positions follow in this
/// order, in place. Like the MLPs, it adds its result to `residual` if that is defined; the last
/// product does this when it stores its result, which saves a pass over memory.
class MT_API Attention {
 public:
  Attention(const Scope& scope, Dim embed, const AttentionOptions& options);
  Tensor operator()(const Tensor& x_TD, const ModelInput& input,
                    const Tensor& residual_TD = {}) const;

 private:
  Tensor heads_of(Tensor qkv_TN, const ModelInput& input) const;
  AttentionOptions options_;
  Region region_;
  HeadShard heads_;
  Linear qkv_;
  std::optional<QkNorm> norm_;
  std::optional<Linear> gate_;
  Linear out_;
  AttentionCore core_;
};

}  // namespace mtrain
