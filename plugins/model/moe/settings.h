// The settings of the moe model. Values.
#pragma once
#include <cstdint>
#include <optional>

#include "mtrain/nn/decoder.h"
#include "mtrain/nn/moe_settings.h"

namespace mtrain {

/// Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434).
struct MlaSettings {
  int64_t kv_lora_rank = 0, q_lora_rank = 0, qk_head_dim = 128, rope_head_dim = 64,
          v_head_dim = 128;
  double norm_eps = 1e-6;
  void bind(Fields& f);
  /// Of the model's number of heads; nothing if the model has plain attention.
  std::optional<LatentSizes> sizes(int64_t heads) const;
};

/// A decoder with experts: Mixtral, Qwen3-MoE, DeepSeek-V3.
struct MoeDecoderSettings : DecoderSettings {
  MoeDecoderSettings() { ffn_hidden_size = 14336; }
  MoeSettings moe;
  MlaSettings mla;
  void bind(Fields& f);

  /// These settings with what follows from them.
  MoeDecoderSettings resolved() const;
  /// Whether block i has experts.
  bool sparse(int64_t i) const {
    return i >= moe.first_dense_layers && (i - moe.first_dense_layers + 1) % moe.layer_freq == 0;
  }
};

}  // namespace mtrain
