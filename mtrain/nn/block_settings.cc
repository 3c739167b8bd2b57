#include "mtrain/nn/block_settings.h"

#include <cmath>

#include "mtrain/base/float16.h"

namespace mtrain {

void BlockSettings::bind(Fields& f) {
  using enum ResumeClass;
  f("norm", norm, "rms: RMSNorm; layer: LayerNorm, which also subtracts the mean")
      .one_of({"rms", "layer"})
      .resume(impossible)
      .renamed_from({"normalization"});
  f("norm_position", norm_position,
    "norms of a block's attention and MLP: pre: of their inputs; post: of their outputs, before "
    "the sum with the residual stream (OLMo 2); sandwich: of both (Gemma 2, GLM-4)")
      .one_of({"pre", "post", "sandwich"})
      .resume(impossible);
  f("norm_weight", norm_weight, "norms multiply by a learned weight; false: as in OLMo 1")
      .resume(impossible);
  f("norm_bias", norm_bias, "norm=layer: norms add a learned bias").resume(impossible);
  f("norm_zero_centered", norm_zero_centered,
    "norms multiply by 1 + weight, with a weight that starts at 0 (Gemma, Nemotron)")
      .resume(impossible)
      .renamed_from({"layernorm_zero_centered_gamma", "apply_layernorm_1p"});
  f("parallel", parallel,
    "none: the MLP reads the residual stream after attention has been added to it; one_norm: "
    "attention and MLP read the same norm of the residual stream (Falcon, Cohere, Phi); two_norms: "
    "each reads its own norm of it (GPT-NeoX)")
      .one_of({"none", "one_norm", "two_norms"})
      .resume(impossible);
  f("activation", activation,
    "activation of the MLP; gelu_new: the tanh approximation; silu needs mlp_gated, relu and "
    "squared_relu need mlp_gated=false")
      .one_of({"silu", "gelu", "gelu_new", "relu", "squared_relu"})
      .resume(impossible)
      .renamed_from({"hidden_act", "hidden_activation"});
  f("mlp_gated", mlp_gated,
    "true: down(activation(gate(x)) * up(x)); false: down(activation(up(x)))")
      .resume(impossible)
      .renamed_from({"gated_linear_unit"});
  f("mlp_bias", mlp_bias, "the MLP's projections add biases").resume(impossible);
  f("head_bias", head_bias, "the output head adds a bias (Phi)").resume(impossible);
  f("embedding_multiplier", embedding_multiplier,
    "factor of the embeddings (Granite); 0: the square root of hidden_size, rounded to the "
    "dtype of activations (Gemma)")
      .min(0);
  bind_embedding_noise(f, embedding_noise);
  f("residual_multiplier", residual_multiplier,
    "factor of what attention and MLP add to the residual stream (Granite)")
      .exclusive_min(0);
  f("logit_scale", logit_scale, "factor of the logits (Cohere; Granite: 1 / logits_scaling)")
      .exclusive_min(0);
  f("logit_cap", logit_cap, "soft cap c of the logits, c * tanh(x / c), after logit_scale; 0: none")
      .min(0)
      .renamed_from({"final_logit_softcapping"});
}

void bind_embedding_noise(Fields& f, double& alpha) {
  f("embedding_noise", alpha,
    "NEFTune: while training, add uniform noise of up to embedding_noise / sqrt(seq_length * "
    "hidden_size) to the embeddings, before a factor of theirs; 0: none")
      .min(0)
      .example("5")
      .training_only();
}

float embedding_noise_size(double alpha, int64_t seq_length, int64_t width) {
  return static_cast<float>(
      alpha / std::sqrt(static_cast<double>(seq_length) * static_cast<double>(width)));
}

NormOptions BlockSettings::norm_options(float eps) const {
  return {.kind = norm == "layer" ? Norm::Kind::layer : Norm::Kind::rms,
          .eps = eps,
          .weight = norm_weight,
          .bias = norm == "layer" && norm_bias && norm_weight,
          .zero_centered = norm_zero_centered};
}

MlpOptions BlockSettings::mlp_options(float init_std, float out_init_std) const {
  return {.init_std = init_std,
          .out_init_std = out_init_std,
          .gated = mlp_gated,
          .bias = mlp_bias,
          .activation = mlp_activation()};
}

Activation BlockSettings::mlp_activation() const {
  if (activation == "gelu") return Activation::gelu_erf;
  if (activation == "gelu_new") return Activation::gelu_tanh;
  if (activation == "relu") return Activation::relu;
  if (activation == "squared_relu") return Activation::squared_relu;
  return Activation::silu;
}

float BlockSettings::embedding_factor(int64_t hidden_size, DType dtype) const {
  if (embedding_multiplier != 0) return static_cast<float>(embedding_multiplier);
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(hidden_size)));
  return dtype == DType::bf16  ? to_float(bf16(root))
         : dtype == DType::f16 ? to_float(f16(root))
                               : root;
}

void BlockSettings::check() const {
  const bool gate_only = activation == "silu", plain_only = activation.ends_with("relu");
  MT_USER_CHECK(mlp_gated ? !plain_only : !gate_only, ErrorClass::config,
                cat("model.activation=", activation,
                    " does not support model.mlp_gated=", mlp_gated ? "true" : "false"),
                "silu needs a gated MLP, relu and squared_relu one without a gate; gelu and "
                "gelu_new support both");
  MT_USER_CHECK(parallel != "one_norm" || norms_before(), ErrorClass::config,
                "model.parallel=one_norm cannot be combined with model.norm_position=post, which "
                "has no norm to share",
                "choose model.norm_position=pre or sandwich, or model.parallel=two_norms");
}

}  // namespace mtrain
