// Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434, 2.1): queries, keys and values
// are projected from narrow latents. A value that holds references to parameters: the constructor
// adds the parameters, a call puts ops on the tape. For the rank's own thread. Dimensions: T
// tokens, D embed, H heads, R the rotary part of a head.
#pragma once
#include <optional>

#include "mtrain/autograd/latent_ops.h"
#include "mtrain/nn/attention_core.h"

namespace mtrain {

/// Widths of latents and heads.
struct LatentSizes {
  int64_t q_rank = 0;   // of the latent of queries; 0: none
  int64_t kv_rank = 1;  // of the latent of keys and values
  LatentHeads heads;
  float norm_eps = 1e-6f;  // of the latents' norms
};

/// Parameters: q_down, q_norm and q_up, or q without a latent of queries; kv_down, kv_norm, kv_up;
/// k_rope, the projection to the rotary part of the keys, which all heads share; out.
///
/// Latents are computed from the tokens of the residual stream that the rank holds. The region
/// begins after their norms: what is gathered there is as wide as the latents. The up projections
/// are sharded by heads; those to the latents are on every tensor-parallel rank.
///
/// For core attention, softmax(QKᵀ)V, queries, keys and values of a head have the same width, the
/// largest one; shorter ones are padded with zeros. With DeepSeek's widths (192 and 128), that is
/// 1.2 times the multiply-adds of core attention, and 1.125 times the memory of queries, keys and
/// values.
class MT_API LatentAttention {
 public:
  /// In `options`, `layout` must be sizes.heads.layout(), and `bias` applies to q_down, kv_down and
  /// k_rope, but not to q, q_up and kv_up. Throws Error(config) if `options` has qk_norm, clip or
  /// gate.
  LatentAttention(const Scope& scope, Dim embed, const AttentionOptions& options,
                  const LatentSizes& sizes);
  /// Adds its result to `residual` if that is defined.
  Tensor operator()(const Tensor& x_TD, const ModelInput& input,
                    const Tensor& residual_TD = {}) const;

 private:
  Tensor heads_of(const Tensor& kv_TL, const Tensor& q, const Tensor& k_rotary_TR,
                  const Tensor& positions_T) const;
  LatentHeads heads_;  // of this rank
  const RopeTable* rope_;
  Region region_, latents_;  // of the norm of the stream, and of those of the latents
  const BlockPlan* plan_;
  HeadShard shard_;
  std::optional<Linear> q_down_;
  std::optional<Norm> q_norm_;
  Linear q_up_, kv_down_;
  Norm kv_norm_;
  Linear kv_up_, k_rope_, out_;
  AttentionCore core_;
};

}  // namespace mtrain
