#include "mtrain/recipe/settings/optimization.h"

#include "mtrain/base/error.h"

namespace mtrain {

using enum ResumeClass;

void TrainSection::bind(Fields& f) {
  f("steps", steps, "optimizer updates of the whole run")
      .required()
      .min(0)
      .max(kLargestDimension)
      .unit("steps")
      .example("1000")
      .renamed_from({"train_iters", "max_steps"})
      .alternative("epochs");
  f("epochs", epochs,
    "passes over the training data; the number of steps is computed when the run begins")
      .exclusive_min(0)
      .no_default()
      .example("3")
      .renamed_from({"num_epochs", "num_train_epochs"})
      .alternative("steps");
  f("micro_batch_size", micro_batch_size, "samples in one forward and backward pass")
      .min(1)
      .max(kLargestDimension)
      .unit("samples")
      .resume(safe);
  f("global_batch_size", global_batch_size,
    "samples per update: micro_batch_size x accumulation x data-parallel ranks; 0: "
    "micro_batch_size")
      .min(0)
      .max(kLargestDimension)
      .unit("samples");
  f("batch_schedule", batch_schedule,
    "global batch sizes by step, instead of global_batch_size: FINISHED_STEPS:SAMPLES")
      .example("[0:256, 2000:1024]")
      .renamed_from({"step_batch_size_schedule", "rampup_batch_size"});
  f("on_nonfinite", on_nonfinite,
    "action if the loss or its gradient is not finite: stop, or skip the update")
      .one_of({"stop", "skip"})
      .resume(safe);
  f("max_skips", max_skips,
    "on_nonfinite=skip and optimizer.skip_grad_norm: maximum number of consecutive skipped "
    "updates; one more ends the run with status 14")
      .min(1)
      .unit("steps")
      .resume(safe);
  f("skip_steps", skip_steps,
    "steps without an update, whose data is skipped, such as data on which the loss jumped")
      .min(1)
      .unit("steps")
      .example("[1200, 1201]")
      .resume(coming_steps)
      .renamed_from({"iterations_to_skip"});
  f("max_minutes", max_minutes,
    "save and stop after the first step that ends this long after the start, for example before a "
    "cluster's time limit; 0: no limit")
      .min(0)
      .unit("min")
      .resume(safe)
      .renamed_from({"exit_duration_in_mins"});
  f("weight_hash_interval", weight_hash_interval,
    "updates between checks that replicas hold bitwise equal parameters; 0: never")
      .min(0)
      .unit("steps")
      .resume(safe)
      .renamed_from({"check_weight_hash_across_dp_replicas_interval"});
}

void OptimizerSection::bind(Fields& f) {
  const std::string groups = "learning rates by group", offload = "optimizer state in host memory",
                    small = "optimizer state in small types";
  f("type", type, "the optimizer plugin")
      .plugin("optimizer")
      .resume(impossible)
      .renamed_from({"optimizer"});
  f("lr", lr, "peak learning rate").min(0).example("3e-4").renamed_from({"learning_rate"});
  f("weight_decay", weight_decay, "decay of weight matrices; biases and norms have none").min(0);
  f("clip_grad", clip_grad, "largest L2 norm of the whole gradient; 0: no clipping")
      .min(0)
      .renamed_from({"max_grad_norm"});
  f("skip_grad_norm", skip_grad_norm,
    "skip updates whose gradient norm before clipping is above this; null: never")
      .exclusive_min(0)
      .renamed_from({"grad_norm_skip_threshold"});
  f("embedding_lr", embedding_lr, "peak learning rate of embedding and head; null: lr")
      .min(0)
      .needs(groups)
      .renamed_from({"decoupled_lr"});
  f("embedding_min_lr", embedding_min_lr,
    "their rate at the end of the decay; null: scheduler.min_lr")
      .min(0)
      .needs(groups)
      .renamed_from({"decoupled_min_lr"});
  f("exp_avg_dtype", exp_avg_dtype, "type of the gradient's running mean")
      .one_of({"fp32", "bf16", "fp16", "fp8"})
      .needs(small);
  f("exp_avg_sq_dtype", exp_avg_sq_dtype, "type of the squared gradient's running mean")
      .one_of({"fp32", "bf16", "fp16", "fp8"})
      .needs(small);
  f("offload_fraction", offload_fraction, "fraction of the optimizer state in host memory")
      .min(0)
      .max(1)
      .needs(offload)
      .resume(safe)
      .renamed_from({"optimizer_offload_fraction", "optimizer_cpu_offload"});
  f("offload_overlap", offload_overlap, "move offloaded state while other parameters are updated")
      .needs(offload)
      .resume(safe)
      .renamed_from({"overlap_cpu_optimizer_d2h_h2d"});
}

void MixedPrecisionSection::bind(Fields& f) {
  const std::string small = "main parameters and gradients in small types";
  f("dtype", dtype,
    "type of weights and activations in computation; master weights and gradients are fp32. auto: "
    "the faster one of bf16 and fp32 on the machine where the run begins")
      .one_of({"fp32", "bf16", "fp16", kAuto});
  f("params_dtype", params_dtype, "type of the main parameters")
      .one_of({"fp32", "bf16", "fp16"})
      .needs(small)
      .renamed_from({"main_params_dtype"});
  f("grads_dtype", grads_dtype,
    "type of the main gradients, in which micro-batches are accumulated")
      .one_of({"fp32", "bf16"})
      .needs(small)
      .renamed_from({"main_grads_dtype"});
  f("residual_dtype", residual_dtype, "type of the residual stream; compute: the same as dtype")
      .one_of({"compute", "fp32"})
      .needs("a residual stream of its own type")
      .renamed_from({"fp32_residual_connection"});
  f("tf32", tf32,
    "fp32: matrix products on a GPU may use TF32 (10 mantissa bits), which is several times as "
    "fast")
      .resume(safe)
      .renamed_from({"allow_tf32"});
  bind_loss_scale(f);
  bind_fp8(f);
}

DType MixedPrecisionSection::compute_type() const {
  std::optional<DType> type = dtype_from_name(dtype);
  MT_CHECK(type.has_value(), "mixed_precision.dtype is ", dtype,
           ", which settle_dtype() has not resolved");
  return *type;
}

void MixedPrecisionSection::bind_loss_scale(Fields& f) {
  f("loss_scale", loss_scale, "fp16: constant loss scale; 0: dynamic").min(0);
  f("initial_loss_scale", initial_loss_scale, "fp16: initial loss scale").min(1);
  f("min_loss_scale", min_loss_scale, "fp16: minimum loss scale").exclusive_min(0);
  f("loss_scale_window", loss_scale_window,
    "fp16: consecutive finite steps before the scale doubles")
      .min(1)
      .unit("steps");
  f("loss_scale_hysteresis", loss_scale_hysteresis,
    "fp16: overflows before the scale halves; the count restarts when the scale doubles")
      .min(1)
      .unit("steps")
      .renamed_from({"hysteresis"});
}

void MixedPrecisionSection::bind_fp8(Fields& f) {
  f("fp8", fp8,
    "FP8 type of the products of linear layers; hybrid: e4m3 forward, e5m2 for gradients")
      .one_of({"none", "e4m3", "hybrid"});
  f("fp8_recipe", fp8_recipe,
    "source of FP8 scales: earlier steps (delayed), the tensor, its blocks of 128, or groups of 32 "
    "(mxfp8)")
      .one_of({"delayed", "tensorwise", "blockwise", "mxfp8"});
  f("fp8_margin", fp8_margin, "delayed: margin above the largest value, in powers of two")
      .min(0)
      .max(32);
  f("fp8_amax_history", fp8_amax_history,
    "delayed: number of steps in the history of largest values")
      .min(1)
      .max(65536)
      .unit("steps")
      .renamed_from({"fp8_amax_history_len"});
  f("fp8_amax_algo", fp8_amax_algo,
    "delayed: the scale follows the largest or the latest value of the history")
      .one_of({"max", "most_recent"})
      .renamed_from({"fp8_amax_compute_algo"});
  f("fp8_params", fp8_params,
    "the compute copy of weights is FP8 and is gathered in FP8: results are bitwise the same")
      .resume(safe)
      .renamed_from({"fp8_param", "fp8_param_gather"});
  f("fp8_attention", fp8_attention, "matrix products of attention also in FP8")
      .needs("attention in FP8")
      .renamed_from({"fp8_dot_product_attention", "fp8_multi_head_attention"});
  f("fp8_output", fp8_output, "mxfp8: matrix product of the head also in FP8")
      .renamed_from({"fp8_output_proj"});
  f("fp8_activations", fp8_activations, "the gated MLP saves its input in FP8 for backward")
      .needs("activations kept as FP8")
      .renamed_from({"activation_func_fp8_input_store"});
  f("first_bf16_layers", first_bf16_layers,
    "FP8 and FP4: number of first blocks that compute in dtype")
      .min(0)
      .max(kLargestDimension)
      .renamed_from({"num_layers_at_start_in_bf16", "first_last_layers_bf16"});
  f("last_bf16_layers", last_bf16_layers,
    "FP8 and FP4: number of last blocks that compute in dtype")
      .min(0)
      .max(kLargestDimension)
      .renamed_from({"num_layers_at_end_in_bf16"});
  f("reuse_grad_buffer", reuse_grad_buffer, "mxfp8: gathered parameters use the gradient's memory")
      .needs("parameters in the gradient's memory")
      .resume(safe)
      .renamed_from({"reuse_grad_buf_for_mxfp8_param_ag"});
  f("fp4", fp4, "FP4 type of the products of linear layers").one_of({"none", "nvfp4"});
  f("fp4_stochastic_rounding", fp4_stochastic_rounding,
    "FP4: stochastic rounding of gradients, so that small ones are right on average");
  f("fp4_hadamard", fp4_hadamard,
    "FP4: random Hadamard transform of tokens before a weight's gradient, which spreads outliers");
  f("fp4_params", fp4_params, "the compute copy of weights is FP4 and is gathered in FP4")
      .needs("parameters gathered as FP4")
      .renamed_from({"fp4_param", "fp4_param_gather"});
}

void PeftSection::bind(Fields& f) {
  const std::string adapters = "low-rank adapters";
  f("type", type, "fine-tuning method; none: all parameters are trained")
      .one_of({"none", "lora", "dora"})
      .needs(adapters)
      .resume(impossible);
  f("rank", rank, "rank (width) of an adapter")
      .min(1)
      .needs(adapters)
      .resume(impossible)
      .renamed_from({"dim", "r", "lora_rank"});
  f("alpha", alpha, "an adapter's output is scaled by alpha / rank")
      .exclusive_min(0)
      .needs(adapters)
      .renamed_from({"lora_alpha"});
  f("dropout", dropout, "probability of dropping an element of an adapter's input")
      .min(0)
      .exclusive_max(1)
      .needs(adapters)
      .renamed_from({"lora_dropout"});
  f("targets", targets, "the weights with adapters, by name in a block; * matches any text")
      .example("[attn.qkv, attn.out]")
      .needs(adapters)
      .resume(impossible)
      .renamed_from({"target_modules"});
  f("exclude", exclude, "the weights among them without adapters")
      .needs(adapters)
      .resume(impossible)
      .renamed_from({"exclude_modules"});
  f("share_expert_adapters", share_expert_adapters, "all experts of a block share one adapter")
      .needs(adapters)
      .resume(impossible);
}

}  // namespace mtrain
