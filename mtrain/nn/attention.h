// Self-attention of transformers. A value that holds references to parameters: the constructor adds
// the parameters, a call puts ops on the tape. For the rank's own thread. Dimensions: T tokens, D
// embed, H heads, G key/value groups, E head dim.
#pragma once
#include <string>
#include <vector>

#include "mtrain/nn/head_shard.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/rope_table.h"

namespace mtrain {

struct AttentionOptions {
  HeadLayout layout;
  bool bias = false;
  bool causal = true;
  float init_std = 0.02f, out_init_std = 0.02f;
  const RopeTable* rope = nullptr;  // null: no rotary positions; must outlive the module
};

/// Self-attention with one fused projection that holds queries, keys and values group by group.
/// Like the MLPs, it adds its result to `residual` if that is defined; the last product does this
/// when it stores its result, which saves a pass over memory.
class MT_API Attention {
 public:
  Attention(const Scope& scope, Dim embed, const AttentionOptions& options);
  Tensor operator()(const Tensor& x_TD, const ModelInput& input,
                    const Tensor& residual_TD = {}) const;

 private:
  AttentionOptions options_;
  Region region_;
  const BlockPlan* plan_;
  HeadShard heads_;
  ContextGroups context_;
  ContextKind context_kind_;
  Linear qkv_, out_;
};

}  // namespace mtrain
