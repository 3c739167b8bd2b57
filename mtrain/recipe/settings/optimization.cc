#include "mtrain/recipe/settings/optimization.h"

#include <cmath>

#include "mtrain/base/error.h"

namespace mtrain {

using enum ResumeClass;

void ObjectiveSection::bind(Fields& f) {
  f("type", type,
    "the training objective; tokens: the mean loss of the targets; distillation: a teacher's "
    "distribution over each next token; otherwise the plugin of an objective over answers")
      .plugin("objective")
      .resume(impossible);
  f("reference", reference,
    "where an objective's reference log-probabilities come from; adapters: the model with its "
    "adapters switched off, precomputed: the initial model, before the first step, kept in the "
    "run's folder; auto: adapters if they initially change nothing, else precomputed")
      .one_of({"auto", "adapters", "precomputed"})
      .resume(impossible);
}

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
    "passes over the training data; the number of steps is computed when the run starts")
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
    "global batch sizes that change during the run, in place of global_batch_size; each entry is "
    "FINISHED_STEPS:SAMPLES and applies after that many steps: 2000:1024 from step 2001 on")
      .example("[0:256, 2000:1024]")
      .renamed_from({"step_batch_size_schedule"});
  bind_faults(f);
  f("max_minutes", max_minutes,
    "save a checkpoint and stop after the first step that ends this long after the start, for "
    "example before a cluster's time limit; 0: no limit")
      .min(0)
      .unit("min")
      .resume(safe)
      .renamed_from({"exit_duration_in_mins"});
  f("weight_hash_interval", weight_hash_interval,
    "updates between checks that all replicas hold bit-identical parameters; 0: never")
      .min(0)
      .unit("steps")
      .resume(safe)
      .renamed_from({"check_weight_hash_across_dp_replicas_interval"});
}

void TrainSection::bind_faults(Fields& f) {
  f("on_nonfinite", on_nonfinite,
    "action when the loss or a gradient is not finite; stop: end the run; skip: skip the update")
      .one_of({"stop", "skip"})
      .resume(safe);
  f("max_skips", max_skips,
    "on_nonfinite=skip and optimizer.skip_grad_norm: the most updates in a row that may be "
    "skipped; one more ends the run with exit status 14")
      .min(1)
      .unit("steps")
      .resume(safe);
  f("skip_steps", skip_steps,
    "steps whose data is skipped without an update, for example data that caused a loss spike")
      .min(1)
      .unit("steps")
      .example("[1200, 1201]")
      .resume(coming_steps)
      .renamed_from({"iterations_to_skip"});
}

void OptimizerSection::bind(Fields& f) {
  f("type", type, "the optimizer plugin")
      .plugin("optimizer")
      .resume(impossible)
      .renamed_from({"optimizer"});
  f("lr", lr, "peak learning rate").min(0).example("3e-4").renamed_from({"learning_rate"});
  f("weight_decay", weight_decay,
    "weight decay of matrices; biases and norm weights are not decayed, unless groups says so")
      .min(0);
  f("clip_grad", clip_grad,
    "maximum L2 norm of the whole gradient; larger gradients are scaled down to it; 0: no clipping")
      .min(0)
      .renamed_from({"max_grad_norm"});
  f("skip_grad_norm", skip_grad_norm,
    "skip updates whose gradient norm before clipping exceeds this; null: skip none")
      .exclusive_min(0)
      .renamed_from({"grad_norm_skip_threshold"});
  bind_groups(f);
  bind_storage(f);
}

void OptimizerSection::bind_groups(Fields& f) {
  f("groups", groups,
    "parameters with other rates: a list of maps with match (names, as in peft.targets) or role "
    "(matrix, embedding, head, norm, bias, expert_matrix, router, other) or both, and with lr or "
    "lr_scale, min_lr, weight_decay; a parameter may be in one group")
      .example("[{role: norm, weight_decay: 0.1}, {match: 'layers.0.*', lr_scale: 0.5}]")
      .merge_replace();
  f("embedding_lr", embedding_lr,
    "peak learning rate of the embedding of tokens and of the output head; null: lr")
      .min(0)
      .renamed_from({"decoupled_lr"});
  f("embedding_min_lr", embedding_min_lr,
    "learning rate of embedding and output head at the end of the decay; null: scheduler.min_lr")
      .min(0)
      .renamed_from({"decoupled_min_lr"});
  f("layer_decay", layer_decay,
    "learning rate of a block, divided by that of the next one; the last block and the head have "
    "lr, and embeddings are below the first block")
      .exclusive_min(0)
      .max(1)
      .example("0.9")
      .renamed_from({"layerwise_lr_decay", "layer_lr_decay"});
}

void OptimizerSection::bind_storage(Fields& f) {
  const std::string offload = "optimizer state in host memory",
                    small = "low-precision optimizer state";
  f("exp_avg_dtype", exp_avg_dtype, "data type of the first moment (running mean of the gradient)")
      .one_of({"fp32", "bf16", "fp16", "fp8"})
      .needs(small);
  f("exp_avg_sq_dtype", exp_avg_sq_dtype,
    "data type of the second moment (running mean of the squared gradient)")
      .one_of({"fp32", "bf16", "fp16", "fp8"})
      .needs(small);
  f("offload_fraction", offload_fraction, "fraction of the optimizer state kept in host memory")
      .min(0)
      .max(1)
      .needs(offload)
      .resume(safe)
      .renamed_from({"optimizer_offload_fraction"});
  f("offload_overlap", offload_overlap,
    "overlap the transfer of offloaded state with the update of other parameters")
      .needs(offload)
      .resume(safe)
      .renamed_from({"overlap_cpu_optimizer_d2h_h2d"});
}

void MixedPrecisionSection::bind(Fields& f) {
  const std::string small = "low-precision main parameters and gradients";
  f("dtype", dtype,
    "data type of weights and activations in computation; master weights and gradients are fp32; "
    "auto: the faster of bf16 and fp32 on the machine where the run starts")
      .one_of({"fp32", "bf16", "fp16", kAuto});
  f("params_dtype", params_dtype, "data type of the main parameters")
      .one_of({"fp32", "bf16", "fp16"})
      .needs(small)
      .renamed_from({"main_params_dtype"});
  f("grads_dtype", grads_dtype,
    "data type of the main gradients, which accumulate over micro-batches")
      .one_of({"fp32", "bf16"})
      .needs(small)
      .renamed_from({"main_grads_dtype"});
  f("tf32", tf32,
    "dtype=fp32: GPU matrix products may round their inputs to TF32 (10 mantissa bits), which is "
    "several times faster")
      .resume(safe)
      .renamed_from({"allow_tf32"});
  bind_loss_scale(f);
  bind_fp8(f);
}

DType MixedPrecisionSection::compute_type() const {
  std::optional<DType> type = dtype_from_name(dtype);
  MT_CHECK(type.has_value(), "mixed_precision.dtype is ", dtype,
           ", which resolve_dtype() has not resolved");
  return *type;
}

void MixedPrecisionSection::bind_loss_scale(Fields& f) {
  f("loss_scale", loss_scale, "dtype=fp16: a constant loss scale; 0: a dynamic loss scale").min(0);
  f("initial_loss_scale", initial_loss_scale, "dtype=fp16: initial value of the dynamic loss scale")
      .min(1);
  f("min_loss_scale", min_loss_scale, "dtype=fp16: minimum of the dynamic loss scale")
      .exclusive_min(0);
  f("loss_scale_window", loss_scale_window,
    "dtype=fp16: finite steps in a row after which the loss scale doubles")
      .min(1)
      .unit("steps");
  f("loss_scale_hysteresis", loss_scale_hysteresis,
    "dtype=fp16: the loss scale halves at this number of overflows and at each further one; the "
    "count restarts when the scale doubles")
      .min(1)
      .unit("steps")
      .renamed_from({"hysteresis"});
}

void MixedPrecisionSection::bind_fp8(Fields& f) {
  f("fp8", fp8,
    "FP8 format of the matrix products in linear layers; hybrid: e4m3 in forward, e5m2 for "
    "gradients")
      .one_of({"none", "e4m3", "hybrid"});
  f("fp8_recipe", fp8_recipe,
    "how FP8 scales are computed; delayed: from earlier steps, tensorwise: one per tensor, "
    "blockwise: one per block of 128, mxfp8: one per group of 32")
      .one_of({"delayed", "tensorwise", "blockwise", "mxfp8"});
  f("fp8_margin", fp8_margin,
    "fp8_recipe=delayed: headroom above the largest value, in powers of two")
      .min(0)
      .max(32);
  f("fp8_amax_history", fp8_amax_history,
    "fp8_recipe=delayed: number of steps whose largest absolute values are kept")
      .min(1)
      .max(65536)
      .unit("steps")
      .renamed_from({"fp8_amax_history_len"});
  f("fp8_amax_algo", fp8_amax_algo,
    "fp8_recipe=delayed: compute the scale from the largest or the most recent of these values")
      .one_of({"max", "most_recent"})
      .renamed_from({"fp8_amax_compute_algo"});
  f("fp8_params", fp8_params,
    "store and all-gather the compute copy of the weights as FP8; results are bit-identical")
      .resume(safe)
      .renamed_from({"fp8_param", "fp8_param_gather"});
  f("fp8_attention", fp8_attention, "compute attention's matrix products in FP8 too")
      .needs("attention in FP8")
      .renamed_from({"fp8_dot_product_attention", "fp8_multi_head_attention"});
  f("fp8_output", fp8_output, "fp8_recipe=mxfp8: compute the output head in FP8 too")
      .renamed_from({"fp8_output_proj"});
  f("fp8_activations", fp8_activations, "the gated MLP stores its input as FP8 for backward")
      .needs("activations stored as FP8")
      .renamed_from({"activation_func_fp8_input_store"});
  f("first_bf16_layers", first_bf16_layers,
    "FP8 and FP4: this many blocks at the start of the model are computed in dtype, which need not "
    "be bf16")
      .min(0)
      .max(kLargestDimension)
      .renamed_from({"num_layers_at_start_in_bf16"});
  f("last_bf16_layers", last_bf16_layers,
    "FP8 and FP4: this many blocks at the end of the model are computed in dtype, which need not "
    "be "
    "bf16")
      .min(0)
      .max(kLargestDimension)
      .renamed_from({"num_layers_at_end_in_bf16"});
  f("fp4", fp4, "FP4 format of the matrix products in linear layers").one_of({"none", "nvfp4"});
  f("fp4_stochastic_rounding", fp4_stochastic_rounding,
    "FP4: round gradients stochastically, so that small gradients survive on average");
  f("fp4_hadamard", fp4_hadamard,
    "FP4: apply a Hadamard transform over tokens before weight-gradient products, which spreads "
    "outliers");
  f("fp4_params", fp4_params, "store and all-gather the compute copy of the weights as FP4")
      .needs("parameters stored as FP4")
      .renamed_from({"fp4_param", "fp4_param_gather"});
}

std::vector<std::string> PeftSection::adapted() const {
  if (!targets.empty()) return targets;
  if (type == "ia3") return {"k_proj", "v_proj", "down_proj"};
  return {"attn.*", "cross.*", "mlp.*"};
}

double PeftSection::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

void PeftSection::bind(Fields& f) {
  f("type", type,
    "fine-tuning method; none: train all parameters; lora: low-rank adapters; dora: also the norms "
    "of the rows of the adapted weights (arXiv:2402.09353); ia3: only vectors that scale the "
    "outputs or inputs of weights (arXiv:2205.05638)")
      .one_of({"none", "lora", "dora", "ia3"})
      .resume(impossible);
  f("base", base,
    "how the frozen weights of blocks' linear layers are stored; same: in the compute dtype; nf4: "
    "4 bits, with a scale for each 64 elements (QLoRA: arXiv:2305.14314); int8, fp8: 8 bits, with "
    "a scale for each row")
      .one_of({"same", "nf4", "int8", "fp8"})
      .resume(impossible);
  f("double_quant", double_quant,
    "nf4: store the scales as 8-bit codes, with a factor for each 256 of them")
      .resume(impossible);
  f("init", init,
    "initial values of adapters; kaiming: a uniform within 1 / sqrt(inputs), b zeros; gaussian: a "
    "normal with deviation 1 / rank, b zeros; pissa: the truncated SVD of the weight, whose "
    "residual is frozen (arXiv:2404.02948)")
      .one_of({"kaiming", "gaussian", "pissa"})
      .resume(impossible);
  f("init_from", init_from,
    "a folder with adapters as PyPI's peft writes it (adapter_config.json), from which they start; "
    "empty: as init says")
      .example("adapters/mine")
      .resume(ResumeClass::start)
      .input_path();
  bind_sizes(f);
  bind_names(f);
}

void PeftSection::bind_sizes(Fields& f) {
  f("rank", rank, "rank of an adapter")
      .min(1)
      .resume(impossible)
      .renamed_from({"dim", "r", "lora_rank"});
  f("alpha", alpha, "an adapter's output is multiplied by alpha / rank")
      .exclusive_min(0)
      .renamed_from({"lora_alpha"});
  f("ranks", ranks,
    "other ranks for weights of targets, each as PATTERN:RANK, with patterns as in targets; the "
    "first that matches counts")
      .example("['v_proj:16', 'mlp.*:4']")
      .resume(impossible);
  f("alphas", alphas, "other alphas, each as PATTERN:ALPHA").example("['v_proj:32']");
  f("rslora", rslora,
    "multiply an adapter's output by alpha / sqrt(rank), so that large ranks learn as fast "
    "(arXiv:2312.03732)")
      .renamed_from({"use_rslora"});
  f("dropout", dropout, "probability of dropping an element of an adapter's input")
      .min(0)
      .exclusive_max(1)
      .renamed_from({"lora_dropout"});
  f("lr_ratio", lr_ratio,
    "learning rate of b, of magnitudes and of other vectors that are trained, divided by that of a "
    "(LoRA+, arXiv:2402.12354)")
      .exclusive_min(0)
      .renamed_from({"loraplus_lr_ratio"});
}

void PeftSection::bind_names(Fields& f) {
  f("targets", targets,
    "weights that get adapters, by their name within a block, such as attn.qkv, or that of one "
    "matrix, such as attn.qkv.q, or with its block, such as layers.3.attn.qkv; * matches any "
    "characters; empty: [attn.*, cross.*, mlp.*], and with type=ia3 [k_proj, v_proj, down_proj]. "
    "Hugging Face's names of Llama's weights (q_proj, …, down_proj) and all-linear are "
    "understood, too")
      .example("[q_proj, v_proj]")
      .resume(impossible)
      .renamed_from({"target_modules"});
  f("feedforward", feedforward,
    "type=ia3: weights of targets whose vector multiplies their inputs instead of their results")
      .example("[down_proj]")
      .resume(impossible)
      .renamed_from({"feedforward_modules"});
  f("exclude", exclude, "weights of targets that get no adapter")
      .resume(impossible)
      .renamed_from({"exclude_modules"});
  f("train", train,
    "parameters that are trained besides adapters, by their full name; * matches any characters. "
    "lm_head and embed_tokens, Hugging Face's names, are understood, too")
      .example("['*norm*', head.weight]")
      .resume(impossible)
      .renamed_from({"modules_to_save"});
  f("share_expert_adapters", share_expert_adapters,
    "all experts of a block share one adapter, if targets has a pattern for experts, such as "
    "mlp.experts.*")
      .resume(impossible);
}

}  // namespace mtrain
