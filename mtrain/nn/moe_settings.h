// The settings of mixtures of experts, under `moe.` of a model's section. A recipe that sets one
// of those that bind() marks by needs() is refused, and the error names the missing part. Values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/nn/moe.h"

namespace mtrain {

struct MT_API RouterSettings {
  std::string score = "softmax", dtype = "fp32", normalize = "auto";
  bool pre_softmax = false, bias = false, logit_bias = false;
  double scaling = 1, bias_update_rate = 1e-3, z_loss_coeff = 0, jitter = 0;
  int64_t groups = 0, group_top_k = 0, group_best = 0;
  std::vector<std::string> balancing = {"aux_loss"};
  std::vector<double> aux_loss_coeff = {0.01};
  void bind(Fields& f);
  RouterRule rule(int64_t top_k) const;
  bool sinkhorn() const;

 private:
  void bind_balance(Fields& f);
};

struct MT_API MoeSettings {
  int64_t experts = 8, top_k = 2, ffn_hidden_size = 0, shared_ffn_hidden_size = 0, latent_size = 0;
  int64_t first_dense_layers = 0, layer_freq = 1, shared_experts = 0;
  bool expert_bias = false, shared_gate = false, shared_overlap = false, pad_to_capacity = false;
  std::optional<double> capacity_factor, activation_clamp;
  double swish_factor = 1, glu_offset = 0;
  std::string drop_policy = "probs", dispatcher = "alltoall";
  RouterSettings router;
  void bind(Fields& f);
  /// The options of a block's experts. `ffn`: the width of an expert if ffn_hidden_size is 0.
  /// Throws Error(config) for settings that contradict each other.
  MoeOptions options(int64_t ffn) const;
  /// The width of the shared expert, with experts of width `ffn`.
  int64_t shared_width(int64_t ffn) const;

 private:
  void check() const;
  void bind_activation(Fields& f);
  void bind_dispatch(Fields& f);
};

}  // namespace mtrain
