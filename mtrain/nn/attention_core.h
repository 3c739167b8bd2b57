// Core attention: softmax(QK^T)V with its mask, sinks, recomputation and context parallelism, on a
// tensor that holds queries, keys and values group by group. A value that holds references to
// parameters: the constructor adds the parameters, a call puts ops on the tape. For the rank's own
// thread. Dimensions: T tokens, H heads, E head dim.
#pragma once
#include <optional>

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

/// Parameter: sinks, if they are learned.
class MT_API AttentionCore {
 public:
  /// `heads`: the rank's shard of options.layout.
  AttentionCore(const Scope& scope, const AttentionOptions& options, const HeadShard& heads);
  /// qkv [T, heads.local.width()] -> [T, H*E] of the rank's heads.
  Tensor operator()(const Tensor& qkv, const ModelInput& input) const;

 private:
  Tensor with_cache(const Tensor& qkv, const ModelInput& input) const;
  void add_sinks(const Scope& scope, const AttentionOptions& options, const HeadShard& heads);
  const BlockPlan* plan_;
  HeadLayout layout_;
  AttentionScores scores_;
  ContextGroups context_;
  ContextKind context_kind_;
  Parameter* sinks_ = nullptr;  // [heads]
  Tensor zero_sinks_;           // [heads]; undefined: learned, or none
};

}  // namespace mtrain
