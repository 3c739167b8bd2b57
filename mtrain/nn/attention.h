// Self-attention of transformers. A value that holds references to parameters: the constructor adds
// the parameters, a call puts ops on the tape. For the rank's own thread. Dimensions: T tokens, D
// embed, H heads, G key/value groups, E head dim.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "mtrain/nn/head_shard.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/qk_norm.h"
#include "mtrain/nn/rope_table.h"

namespace mtrain {

/// One more logit in each softmax, which takes its share of the weights and has no value: none, 0,
/// or a learned one for each query head.
enum class AttentionSinks : uint8_t { none, zero, learned };

struct AttentionOptions {
  HeadLayout layout;
  bool bias = false;             // of queries, keys, values and gate
  std::optional<bool> out_bias;  // of the output projection; absent: as `bias`
  bool causal = true;
  std::optional<QkNormOptions> qk_norm;
  float clip = 0;     // limits queries, keys and values to [-clip, clip]; 0: no limit
  bool gate = false;  // a projection of the input gates the result: sigmoid(gate(x)) * attention(x)
  float init_std = 0.02f, out_init_std = 0.02f;
  const RopeTable* rope = nullptr;  // null: no rotary positions; must outlive the module
  int64_t window = 0;               // this and what follows as in AttentionScores
  float scale = 0;                  // 0: 1 / sqrt(head_dim)
  float cap = 0, dropout = 0;
  AttentionSinks sinks = AttentionSinks::none;
  bool shared_input = false;  // as in Region
};

/// Self-attention with one fused projection that holds queries, keys and values group by group.
/// Norms of queries and keys, the limit of values and rotary positions follow in this order, in
/// place.
/// Like the MLPs, it adds its result to `residual` if that is defined; the last product does this
/// when it stores its result, which saves a pass over memory.
class MT_API Attention {
 public:
  Attention(const Scope& scope, Dim embed, const AttentionOptions& options);
  Tensor operator()(const Tensor& x_TD, const ModelInput& input,
                    const Tensor& residual_TD = {}) const;

 private:
  void add_sinks(const Scope& scope);
  Tensor heads_of(Tensor qkv_TN, const ModelInput& input) const;
  AttentionOptions options_;
  AttentionScores scores_;
  Region region_;
  const BlockPlan* plan_;
  HeadShard heads_;
  ContextGroups context_;
  ContextKind context_kind_;
  Linear qkv_;
  std::optional<QkNorm> norm_;
  std::optional<Linear> gate_;
  Linear out_;
  Parameter* sinks_ = nullptr;  // [heads]
  Tensor zero_sinks_;           // [heads]; undefined: learned, or none
};

}  // namespace mtrain
