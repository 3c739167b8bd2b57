// The settings of planned models, for add_planned. Values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/nn/attention_variants.h"
#include "mtrain/nn/layers.h"

namespace mtrain {

struct RouterSettings {
  std::string score = "softmax", dtype = "fp32";
  bool pre_softmax = false, bias = false, force_balance = false;
  double scaling = 1, bias_update_rate = 1e-3, z_loss_coeff = 0, jitter = 0;
  int64_t groups = 0, group_top_k = 0;
  std::vector<std::string> balancing = {"aux_loss"};
  std::vector<double> aux_loss_coeff = {0.01};
  void bind(Fields& f);
};

struct MoeSettings {
  int64_t experts = 8, top_k = 2, ffn_hidden_size = 0, shared_ffn_hidden_size = 0, latent_size = 0;
  int64_t first_dense_layers = 0, layer_freq = 1;
  bool shared_gate = false, shared_overlap = false, pad_to_capacity = false, quantization_padding = false;
  bool grouped_gemm = true, permute_fusion = true;
  std::optional<double> capacity_factor, rank_capacity_factor, activation_clamp;
  std::string drop_policy = "probs", dispatcher = "alltoall", dispatcher_backend = "deepep",
              dispatch_dtype = "bf16";
  RouterSettings router;
  void bind(Fields& f);

 private:
  void bind_dispatch(Fields& f);
};

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
};

struct BertSettings {
  int64_t layers = 24, hidden_size = 1024, heads = 16, ffn_hidden_size = 4096, max_positions = 512,
          segments = 2;
  double norm_eps = 1e-12, init_std = 0.02, dropout = 0.1;
  bool pooler = true, tie_embeddings = true;
  std::string activation = "gelu";
  void bind(Fields& f);
};

struct T5Settings {
  int64_t layers = 24, encoder_layers = 24, hidden_size = 1024, heads = 16, head_dim = 64,
          ffn_hidden_size = 4096;
  int64_t position_buckets = 32, max_distance = 128, decoder_seq_length = 114;
  double norm_eps = 1e-6, init_factor = 1, dropout = 0.1;
  bool tie_embeddings = true;
  std::string activation = "relu";
  void bind(Fields& f);
};

}  // namespace mtrain
