// The settings of training and optimization: objective, train, optimizer, mixed_precision, peft.
// Values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/base/dtype.h"
#include "mtrain/config/fields.h"
#include "mtrain/config/tree.h"

namespace mtrain {

struct ObjectiveSection {
  /// The type for the objective of model and dataset: the mean of the targets' losses.
  static constexpr const char* kTokens = "tokens";
  /// The type for distillation from a teacher (settings/distillation.h), on the same targets.
  static constexpr const char* kDistillation = "distillation";
  std::string type = kTokens, reference = "auto";
  bool teaches() const { return type == kDistillation; }
  bool over_answers() const { return type != kTokens && !teaches(); }
  void bind(Fields& f);
};

struct TrainSection {
  int64_t steps = 0, micro_batch_size = 1, global_batch_size = 0, weight_hash_interval = 0;
  double epochs = 0;  // see epochs.h
  std::string on_nonfinite = "stop";
  int64_t max_skips = 10;
  std::vector<std::string> batch_schedule;
  std::vector<int64_t> skip_steps;
  double max_minutes = 0;
  void bind(Fields& f);

 private:
  void bind_faults(Fields& f);
};

struct OptimizerSection {
  std::string type = "adamw";
  double lr = 3e-4, weight_decay = 0.1, clip_grad = 1.0, layer_decay = 1.0;
  Node groups;  // a list of ParamGroup
  std::optional<double> embedding_lr, embedding_min_lr, skip_grad_norm;
  std::string exp_avg_dtype = "fp32", exp_avg_sq_dtype = "fp32";
  double offload_fraction = 0;
  bool offload_overlap = false;
  void bind(Fields& f);
  /// Whether some parameters have a learning rate or weight decay of their own.
  bool has_groups() const {
    return (groups.is_list() && groups.size() > 0) || embedding_lr || layer_decay != 1;
  }

 private:
  void bind_groups(Fields& f);
  void bind_storage(Fields& f);
};

struct MixedPrecisionSection {
  std::string dtype = "fp32", params_dtype = "fp32", grads_dtype = "fp32";
  bool tf32 = false;
  double loss_scale = 0, initial_loss_scale = 65536, min_loss_scale = 1;
  int64_t loss_scale_window = 1000, loss_scale_hysteresis = 1;
  std::string fp8 = "none", fp8_recipe = "tensorwise", fp8_amax_algo = "max", fp4 = "none";
  int64_t fp8_margin = 0, fp8_amax_history = 1024;
  bool fp8_params = false, fp8_attention = false, fp8_output = false, fp8_activations = false,
       fp4_params = false;
  bool fp4_stochastic_rounding = true, fp4_hadamard = true;
  int64_t first_bf16_layers = 0, last_bf16_layers = 0;
  void bind(Fields& f);
  static constexpr const char* kAuto = "auto";
  /// The dtype in which the model computes. REQUIRES: dtype is not auto, or resolve_dtype()
  /// (dtype_choice.h) has resolved it.
  DType compute_type() const;
  /// True if matrix products in blocks are in FP8 or FP4.
  bool quantized_products() const { return fp8 != "none" || fp4 != "none"; }

 private:
  void bind_loss_scale(Fields& f);
  void bind_fp8(Fields& f);
};

struct PeftSection {
  std::string type = "none", base = "same", init = "kaiming", init_from;
  int64_t rank = 32;
  double alpha = 32, dropout = 0, lr_ratio = 1;
  bool rslora = false, double_quant = true;
  std::vector<std::string> targets, exclude, train, feedforward = {"mlp.down"};
  std::vector<std::string> ranks, alphas;  // "PATTERN:NUMBER"
  /// `targets`, or the default targets of this type if `targets` is empty.
  std::vector<std::string> adapted() const;
  /// Whether the model's weights are frozen.
  bool frozen() const { return type != "none"; }
  /// Whether adapters start from the singular vectors of their weights.
  bool starts_principal() const { return frozen() && init == "pissa" && init_from.empty(); }
  /// The factor of an adapter's output, unless `ranks` or `alphas` give another one.
  double scale() const;
  bool share_expert_adapters = true;
  void bind(Fields& f);

 private:
  void bind_sizes(Fields& f);
  void bind_names(Fields& f);
};

}  // namespace mtrain
