// Settings of a decoder's blocks, embedding and head: kind and position of norms, the MLP, factors
// of the residual stream and of the logits. Values.
#pragma once
#include <string>

#include "mtrain/config/fields.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/mlp.h"

namespace mtrain {

/// The setting embedding_noise of decoders.
MT_API void bind_embedding_noise(Fields& f, double& alpha);
/// The largest noise on an element of the embeddings, alpha / sqrt(seq_length · width).
MT_API float embedding_noise_size(double alpha, int64_t seq_length, int64_t width);

/// Settings at the top level of a model's section. The defaults are Llama's.
struct MT_API BlockSettings {
  std::string norm = "rms", norm_position = "pre", parallel = "none", activation = "silu";
  bool norm_weight = true, norm_bias = true, norm_zero_centered = false;
  bool mlp_gated = true, mlp_bias = false, head_bias = false;
  double embedding_multiplier = 1, residual_multiplier = 1, logit_scale = 1, logit_cap = 0,
         embedding_noise = 0;
  void bind(Fields& f);

  NormOptions norm_options(float eps) const;
  MlpOptions mlp_options(float init_std, float out_init_std) const;
  Activation mlp_activation() const;
  LogitMap logits() const {
    return {.scale = static_cast<float>(logit_scale), .cap = static_cast<float>(logit_cap)};
  }
  /// The factor by which embeddings are multiplied, if the residual stream has this dtype.
  float embedding_factor(int64_t hidden_size, DType dtype) const;
  bool norms_before() const { return norm_position != "post"; }
  bool norms_after() const { return norm_position != "pre"; }
  bool is_parallel() const { return parallel != "none"; }
  /// True if attention and MLP read the output of the same norm.
  bool shares_norm() const { return parallel == "one_norm" && norms_before(); }
  /// Number of matrices of the MLP.
  int64_t mlp_matrices() const { return mlp_gated ? 3 : 2; }
  /// Throws Error(config) for settings that contradict each other.
  void check() const;
};

}  // namespace mtrain
