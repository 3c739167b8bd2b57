// The settings of the moe model. Values.
#pragma once
#include <cmath>
#include <cstdint>

#include "mtrain/nn/attention_variants.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/moe_settings.h"

namespace mtrain {

struct MlaSettings {
  int64_t kv_lora_rank = 0, q_lora_rank = 0, qk_head_dim = 128, rope_head_dim = 64, v_head_dim = 128;
  bool cache_latents = false;
  void bind(Fields& f);
};

struct MtpSettings {
  int64_t layers = 0;
  double loss_coeff = 0.1;
  bool standalone = false;
  void bind(Fields& f);
};

/// A decoder with experts: Mixtral, Qwen3-MoE, DeepSeek-V3. Named like the llama plugin's where they are the
/// same.
struct MoeDecoderSettings {
  int64_t layers = 32, hidden_size = 4096, heads = 32, kv_heads = 0, ffn_hidden_size = 14336, head_dim = 0;
  double norm_eps = 1e-5, init_std = 0.02;
  bool tie_embeddings = false;
  RopeConfig rope;
  AttentionVariants attention;
  MoeSettings moe;
  MlaSettings mla;
  MtpSettings mtp;
  void bind(Fields& f);

  HeadLayout head_layout() const {
    return {heads, kv_heads > 0 ? kv_heads : heads, head_dim > 0 ? head_dim : hidden_size / heads};
  }
  Dim embed() const { return {"embed", hidden_size}; }
  float std() const { return static_cast<float>(init_std); }
  // Projections into the residual stream start smaller, so that its variance does not grow with depth (GPT-2, §2.3).
  float out_std() const { return static_cast<float>(init_std / std::sqrt(2.0 * static_cast<double>(layers))); }
  /// Whether block i has experts.
  bool sparse(int64_t i) const {
    return i >= moe.first_dense_layers && (i - moe.first_dense_layers + 1) % moe.layer_freq == 0;
  }
};

}  // namespace mtrain
