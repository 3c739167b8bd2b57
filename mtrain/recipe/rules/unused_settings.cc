// Settings that have an effect only together with other settings. A value without effect is a
// warning where the user wrote it: see Rule::unused. It is an error where it says that the model
// was meant to be another one.
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {
namespace {

struct Details {
  const char* why = "";    // the reason
  const char* fix = "";    // fixes in addition to the default, as in Rule::fix
  const char* where = "";  // in the message, instead of the values of the condition's settings
};

/// The setting at `path` has an effect where `condition` holds.
constexpr Rule row(const char* id, const char* path, const char* condition, Details details = {}) {
  return {id,  path, "", condition, details.where, details.why, details.fix, Severity::warning,
          true};
}

/// The same as an error.
constexpr Rule refused(const char* id, const char* path, const char* condition,
                       Details details = {}) {
  Rule rule = row(id, path, condition, details);
  rule.severity = Severity::error;
  return rule;
}

#define MT_LOW_RANK "(peft.type == 'lora' or peft.type == 'dora')"
#define MT_DYNAMIC_SCALE "mixed_precision.dtype == 'fp16' and mixed_precision.loss_scale == 0"
#define MT_DELAYED "fp8 and mixed_precision.fp8_recipe == 'delayed'"
#define MT_YARN "model.rope.scaling == 'yarn'"
#define MT_LATENT "(model.mla.kv_lora_rank ?? 0) > 0"
#define MT_RECORDS_ARE_SPLIT                                                                      \
  "dataset.valid_path == '' and dataset.test_path == '' and len(dataset.valid_paths ?? []) == 0 " \
  "and len(dataset.test_paths ?? []) == 0"

constexpr Details kDynamicScale = {"only fp16 has a loss scale, and loss_scale=0 makes it dynamic"};
constexpr Details kDelayed = {"only delayed scales come from earlier steps"};
constexpr Details kYarn = {"", "model.rope.scaling='yarn'"};
constexpr Details kLatent = {
    "for latent attention, set model.mla.kv_lora_rank to the width of the latent of keys and "
    "values; without it, heads have the width model.head_dim"};
constexpr Details kAdapters = {
    "only adapters use it: peft.type=lora, dora or ia3, with model.init_from", "peft.type='lora'"};
constexpr Details kLowRank = {
    "only low-rank adapters use it: peft.type=lora or dora, with model.init_from",
    "peft.type='lora'"};
constexpr Details kFim = {"only dataset.fim.rate > 0 rearranges documents"};

constexpr Rule kUnusedSettingRules[] = {
    // model
    row("vocab-multiple-unused", "model.vocab_multiple", "model.vocab_size == 0",
        {"a given vocab_size is not rounded", "model.vocab_size=0"}),
    row("init-vocab-unused", "model.init_vocab", "model.init_from != ''",
        {"with random initial weights, there are no rows to resize"}),
    row("init-upcycle-unused", "model.init_upcycle", "model.init_from != ''",
        {"it takes the experts' initial weights from a dense model"}),
    row("init-std-unused", "model.init_std",
        "model.init_from == '' or model.init_vocab == 'resize' or model.init_upcycle or "
        "(model.labels ?? 0) > 0",
        {"the initial weights come from there", "", "model.init_from"}),
    row("recompute-modules-unused", "model.recompute_modules", "model.recompute == 'selective'",
        {"", "model.recompute='selective'"}),
    row("norm-bias-unused", "model.norm_bias", "model.norm == 'layer' and model.norm_weight",
        {"RMSNorm has no bias, nor has a norm without weight"}),
    row("zero-centered-unused", "model.norm_zero_centered", "model.norm_weight",
        {"norms without weight multiply by 1"}),
    row("rope-factor-unused", "model.rope.factor", "model.rope.scaling != 'none'",
        {"", "model.rope.scaling='llama3'"}),
    row("rope-low-freq-unused", "model.rope.low_freq_factor", "model.rope.scaling == 'llama3'",
        {"", "model.rope.scaling='llama3'"}),
    row("rope-high-freq-unused", "model.rope.high_freq_factor", "model.rope.scaling == 'llama3'",
        {"", "model.rope.scaling='llama3'"}),
    row("rope-original-unused", "model.rope.original_max_positions",
        "model.rope.scaling in ['llama3', 'yarn', 'dynamic', 'longrope']",
        {"", "model.rope.scaling='llama3'"}),
    row("rope-beta-fast-unused", "model.rope.beta_fast", MT_YARN, kYarn),
    row("rope-beta-slow-unused", "model.rope.beta_slow", MT_YARN, kYarn),
    row("rope-truncate-unused", "model.rope.truncate", MT_YARN, kYarn),
    row("rope-mscale-unused", "model.rope.mscale",
        "model.rope.mscale == 0 or " MT_YARN
        " and model.rope.attention_factor == null and model.rope.mscale_all_dim > 0",
        {"it is a coefficient of yarn's attention factor, and used only with mscale_all_dim"}),
    row("rope-mscale-all-unused", "model.rope.mscale_all_dim",
        MT_YARN " and (model.rope.attention_factor == null or (" MT_LATENT
                " and model.attention.softmax_scale == null))",
        {"it is a coefficient of yarn's attention factor, and with latent attention of the softmax "
         "scale"}),
    row("attention-factor-unused", "model.rope.attention_factor",
        "model.rope.scaling in ['yarn', 'longrope']"),
    row("short-factor-unused", "model.rope.short_factor", "model.rope.scaling == 'longrope'"),
    row("long-factor-unused", "model.rope.long_factor", "model.rope.scaling == 'longrope'"),
    refused("mla-q-rank-unused", "model.mla.q_lora_rank", MT_LATENT, kLatent),
    refused("mla-qk-width-unused", "model.mla.qk_head_dim", MT_LATENT, kLatent),
    refused("mla-rope-width-unused", "model.mla.rope_head_dim", MT_LATENT, kLatent),
    refused("mla-v-width-unused", "model.mla.v_head_dim", MT_LATENT, kLatent),
    refused("mla-norm-eps-unused", "model.mla.norm_eps", MT_LATENT, kLatent),
    refused("head-dim-unused", "model.head_dim", "(model.mla.kv_lora_rank ?? 0) == 0",
            {"its heads have the widths model.mla.qk_head_dim, rope_head_dim and v_head_dim", "",
             "latent attention"}),
    row("group-best-unused", "model.moe.router.group_best", "model.moe.router.groups > 0",
        {"it ranks groups of experts: set model.moe.router.groups and group_top_k, or leave it "
         "out"}),
    row("local-theta-unused", "model.rope.local_theta", "model.attention.window > 0",
        {"no block has a window"}),
    row("window-interval-unused", "model.attention.global_interval",
        "model.attention.window > 0 and len(model.attention.window_blocks) == 0",
        {"it is an interval of blocks with a window, unless window_blocks lists them",
         "model.attention.window=4096; model.attention.window_blocks=[]"}),
    row("window-blocks-unused", "model.attention.window_blocks", "model.attention.window > 0",
        {"no block has a window", "model.attention.window=4096"}),
    row("qk-norm-scope-unused", "model.attention.qk_norm_scope", "model.attention.qk_norm",
        {"", "model.attention.qk_norm=true"}),
    row("qk-norm-kind-unused", "model.attention.qk_norm_kind", "model.attention.qk_norm",
        {"", "model.attention.qk_norm=true"}),
    row("mtp-loss-unused", "model.mtp.loss_coeff", "model.mtp.layers > 0",
        {"only blocks for further tokens have this loss", "model.mtp.layers=1"}),
    row("drop-policy-unused", "model.moe.drop_policy", "model.moe.capacity_factor != null",
        {"without a capacity no token is dropped", "model.moe.capacity_factor=1.0"}),
    row("pre-softmax-unused", "model.moe.router.pre_softmax", "model.moe.router.score == 'softmax'",
        {"other scores are computed for each expert separately, before top_k"}),
    row("bias-rate-unused", "model.moe.router.bias_update_rate", "model.moe.router.bias"),
    row("aux-loss-unused", "model.moe.router.aux_loss_coeff",
        "model.moe.router.balancing != ['none'] and model.moe.router.balancing != ['sinkhorn']",
        {"", "model.moe.router.balancing=['aux_loss']"}),
    // dataset
    row("split-unused", "dataset.split", MT_RECORDS_ARE_SPLIT,
        {"split divides the training data where no other data is given", "",
         "separate data for validation or testing"}),
    row("max-bad-unused", "dataset.max_bad", "dataset.on_bad == 'skip'",
        {"otherwise the first bad record is an error", "dataset.on_bad='skip'"}),
    row("packed-length-packing", "dataset.packed_length", "dataset.packing != 'none'",
        {"no records are packed", "dataset.packing='offline'"}),
    row("prompt-template", "dataset.prompt",
        "dataset.chat_template == '' and dataset.template_path == ''",
        {"a chat template renders alpaca records as conversations", "", "a chat template"}),
    row("prompt-format", "dataset.prompt", "dataset.format in ['auto', 'alpaca']",
        {"only alpaca records use it"}),
    row("fim-prefix-unused", "dataset.fim.prefix", "dataset.fim.rate > 0", kFim),
    row("fim-middle-unused", "dataset.fim.middle", "dataset.fim.rate > 0", kFim),
    row("fim-suffix-unused", "dataset.fim.suffix", "dataset.fim.rate > 0", kFim),
    row("fim-pad-unused", "dataset.fim.pad", "dataset.fim.rate > 0", kFim),
    row("fim-cut-unused", "dataset.fim.cut", "dataset.fim.rate > 0", kFim),
    row("fim-spm-unused", "dataset.fim.spm_rate", "dataset.fim.rate > 0", kFim),
    row("fim-fragment-unused", "dataset.fim.fragment", "dataset.fim.rate > 0", kFim),
    row("fim-fragment-rate-unused", "dataset.fim.fragment_rate",
        "dataset.fim.rate > 0 and dataset.fim.fragment != ''",
        {"only dataset.fim.fragment divides documents into fragments"}),
    row("fim-no-prefix-unused", "dataset.fim.no_prefix", "dataset.fim.rate > 0", kFim),
    // train, optimizer, scheduler
    row("nesterov-unused", "optimizer.nesterov", "(optimizer.momentum ?? 0) > 0",
        {"without momentum, there is nothing to look ahead by", "optimizer.momentum=0.9"}),
    row("other-beta1-unused", "optimizer.other.beta1", "optimizer.other.type != 'sgd'"),
    row("other-beta2-unused", "optimizer.other.beta2", "optimizer.other.type != 'sgd'"),
    row("other-eps-unused", "optimizer.other.eps", "optimizer.other.type == 'adamw'",
        {"", "optimizer.other.type='adamw'"}),
    row("other-momentum-unused", "optimizer.other.momentum", "optimizer.other.type == 'sgd'",
        {"", "optimizer.other.type='sgd'"}),
    row("other-nesterov-unused", "optimizer.other.nesterov",
        "optimizer.other.type == 'sgd' and optimizer.other.momentum > 0",
        {"", "optimizer.other.type='sgd'"}),
    row("max-skips-unused", "train.max_skips",
        "train.on_nonfinite == 'skip' or optimizer.skip_grad_norm != null",
        {"no update is skipped", "train.on_nonfinite='skip'"}),
    row("constant-min-lr", "scheduler.min_lr", "not scheduler.type in ['constant', 'stages']",
        {"a constant rate does not decay, and stages have their own ends"}),
    row("decay-has-end", "scheduler.decay_steps", "decays_by_end",
        {"that schedule has no last step"}),
    row("warmup-init-unused", "scheduler.warmup_init_lr", "scheduler.warmup_steps > 0",
        {"there is no warmup", "scheduler.warmup_steps=10"}),
    row("warmup-shape-unused", "scheduler.warmup_shape", "scheduler.warmup_steps > 0",
        {"there is no warmup", "scheduler.warmup_steps=10"}),
    row("power-unused", "scheduler.power", "scheduler.type == 'polynomial'",
        {"", "scheduler.type='polynomial'"}),
    row("gamma-unused", "scheduler.gamma", "scheduler.type in ['exponential', 'multistep']",
        {"", "scheduler.type='multistep'"}),
    row("milestones-unused", "scheduler.milestones", "scheduler.type == 'multistep'",
        {"", "scheduler.type='multistep'"}),
    row("cycle-steps-unused", "scheduler.cycle_steps", "scheduler.type == 'cosine_restarts'",
        {"", "scheduler.type='cosine_restarts'"}),
    row("cycle-factor-unused", "scheduler.cycle_factor", "scheduler.type == 'cosine_restarts'",
        {"", "scheduler.type='cosine_restarts'"}),
    row("stable-steps-wsd", "scheduler.stable_steps", "scheduler.type == 'wsd'",
        {"only wsd has a plateau before its decay", "scheduler.type='wsd'"}),
    row("wsd-decay-unused", "scheduler.wsd_decay", "scheduler.type == 'wsd'",
        {"", "scheduler.type='wsd'"}),
    // mixed_precision
    row("initial-scale-unused", "mixed_precision.initial_loss_scale", MT_DYNAMIC_SCALE,
        kDynamicScale),
    row("min-scale-unused", "mixed_precision.min_loss_scale", MT_DYNAMIC_SCALE, kDynamicScale),
    row("scale-window-unused", "mixed_precision.loss_scale_window", MT_DYNAMIC_SCALE,
        kDynamicScale),
    row("scale-hysteresis-unused", "mixed_precision.loss_scale_hysteresis", MT_DYNAMIC_SCALE,
        kDynamicScale),
    row("fp8-recipe-unused", "mixed_precision.fp8_recipe", "fp8"),
    row("fp8-margin-unused", "mixed_precision.fp8_margin", MT_DELAYED, kDelayed),
    row("fp8-history-unused", "mixed_precision.fp8_amax_history", MT_DELAYED, kDelayed),
    row("fp8-algo-unused", "mixed_precision.fp8_amax_algo", MT_DELAYED, kDelayed),
    row("first-bf16-unused", "mixed_precision.first_bf16_layers", "fp8 or fp4"),
    row("last-bf16-unused", "mixed_precision.last_bf16_layers", "fp8 or fp4"),
    row("fp4-rounding-unused", "mixed_precision.fp4_stochastic_rounding", "fp4"),
    row("fp4-hadamard-unused", "mixed_precision.fp4_hadamard", "fp4"),
    // dist, ddp, comm_overlap
    row("order-unused", "dist.order", "dist.pp > 1",
        {"without a pipeline, both orders are the same: they differ only in the position of the "
         "pipeline dimension"}),
    row("schedule-unused", "dist.schedule", "dist.pp > 1 and dist.schedule_file == ''"),
    row("first-stage-unused", "dist.first_stage_layers", "dist.pp > 1"),
    row("last-stage-unused", "dist.last_stage_layers", "dist.pp > 1"),
    row("account-embedding-unused", "dist.account_for_embedding", "dist.pp > 1"),
    row("account-loss-unused", "dist.account_for_loss", "dist.pp > 1"),
    row("group-size-unused", "dist.microbatch_group_size",
        "comm_overlap.moe or (dist.pp > 1 and dist.schedule == 'interleaved' and "
        "dist.schedule_file == '')",
        {"only an interleaved schedule switches between the stages of a rank"}),
    row("cp-comm-unused", "dist.cp_comm", "dist.cp > 1"),
    row("cp-limit-unused", "dist.max_tokens_per_cp_rank", "dist.dynamic_cp",
        {"", "dist.dynamic_cp=true"}),
    row("nccl-algo-unused", "dist.nccl_algo",
        "dist.backend == 'cuda' and (dist.comm == null or dist.comm in device_communicators)",
        {"only NCCL reads it"}),
    row("overlap-in-order", "ddp.overlap_grad_reduce",
        "not ddp.in_order or ddp.overlap_param_gather",
        {"with ddp.in_order gradients are added after the last backward", "ddp.in_order=false",
         "ddp.in_order=true"}),
    row("wgrad-limit-unused", "comm_overlap.embedding_wgrad_limit", "comm_overlap.embedding_wgrad"),
    row("objective-reference-unused", "objective.reference",
        "objective.type != 'tokens' and objective.type != 'distillation'",
        {"the losses of single tokens have no reference", "objective.type='dpo'"}),
    row("loss-unused", "objective.loss", "len(objective.losses ?? []) == 0",
        {"the losses of objective.losses take its place", "objective.losses=[]"}),
    row("labels-of-unused", "model.labels_of", "(model.labels ?? 0) > 0",
        {"a model without labels predicts tokens", "model.labels=2"}),
    row("distillation-beta-unused", "objective.beta",
        "objective.type != 'distillation' or objective.kind == 'jsd'",
        {"the mixture is that of jsd", "objective.kind='jsd'"}),
    row("distillation-store-unused", "objective.store",
        "objective.type != 'distillation' or objective.top_k > 0",
        {"whole distributions are not stored", "objective.top_k=64"}),
    // peft
    row("peft-init-unused", "peft.init_from", "peft.type != 'none'", kAdapters),
    row("peft-start-unused", "peft.init", MT_LOW_RANK " and peft.init_from == ''",
        {"the adapters of peft.init_from have values", "peft.type='lora'"}),
    row("peft-rank-unused", "peft.rank", MT_LOW_RANK, kLowRank),
    row("peft-alpha-unused", "peft.alpha", MT_LOW_RANK, kLowRank),
    row("peft-ranks-unused", "peft.ranks", MT_LOW_RANK, kLowRank),
    row("peft-alphas-unused", "peft.alphas", MT_LOW_RANK, kLowRank),
    row("peft-rslora-unused", "peft.rslora", MT_LOW_RANK, kLowRank),
    row("peft-dropout-unused", "peft.dropout", MT_LOW_RANK, kLowRank),
    row("peft-lr-ratio-unused", "peft.lr_ratio", MT_LOW_RANK, kLowRank),
    row("peft-targets-unused", "peft.targets", "peft.type != 'none'", kAdapters),
    row("peft-feedforward-unused", "peft.feedforward", "peft.type == 'ia3'",
        {"", "peft.type='ia3'"}),
    row("peft-exclude-unused", "peft.exclude", "peft.type != 'none'", kAdapters),
    row("peft-share-unused", "peft.share_expert_adapters", "peft.type == 'lora'",
        {"", "peft.type='lora'"}),
    row("peft-train-unused", "peft.train", "peft.type != 'none'",
        {"all parameters are trained", "peft.type='lora'"}),
    row("peft-base-unused", "peft.base", "peft.type != 'none'",
        {"all parameters are trained", "peft.type='lora'"}),
    row("peft-double-quant-unused", "peft.double_quant", "peft.base == 'nf4'",
        {"only nf4 has scales as codes", "peft.base='nf4'"}),
    // running
    row("offload-unused", "offload.layers", "dist.backend != 'cpu'",
        {"on the CPU, activations are in host memory", "dist.backend='cuda'"}),
    row("fast-attention-unused", "run.fast_attention_gradient", "dist.backend != 'cpu'",
        {"the CPU's kernels always sum in the same order", "dist.backend='cuda'"}),
    row("graph-warmup-unused", "cuda_graph.warmup_steps", "graphs"),
    row("retain-all", "checkpoint.retain_interval", "checkpoint.keep != 0",
        {"with checkpoint.keep=0 no checkpoint is deleted"}),
    row("hf-shard-size-unused", "checkpoint.hf_shard_size", "checkpoint.hf != ''",
        {"it is the size of files of checkpoint.hf"}),
    row("logger-interval-unused", "logger.interval", "logger.console != 'off'",
        {"metrics.jsonl and TensorBoard have every step"}),
    row("memory-interval-unused", "logger.memory_interval", "logger.console != 'off'",
        {"only the console shows the memory in use", "logger.console='auto'"}),
    row("params-norm-unused", "logger.params_norm", "logger.metrics or logger.tensorboard",
        {"the console does not show it", "logger.metrics=true"}),
    row("min-improvement-unused", "validation.min_improvement", "validation.patience > 0",
        {"", "validation.patience=3"}),
    row("prompts-unused", "validation.prompts", "validation.steps > 0",
        {"texts are generated after a validation's loss", "validation.steps=10"}),
    row("generate-tokens-unused", "validation.generate_tokens", "len(validation.prompts) > 0",
        {"no text is generated"}),
    row("temperature-unused", "validation.temperature", "len(validation.prompts) > 0",
        {"no text is generated"}),
    row("validation-interval-unused", "validation.interval", "validation.steps > 0",
        {"", "validation.steps=10"}),
    row("profile-start-unused", "profiling.start", "profiling.type != 'none'",
        {"", "profiling.type='trace'"}),
    row("profile-end-unused", "profiling.end", "profiling.type != 'none'",
        {"", "profiling.type='trace'"}),
    row("profile-ranks-unused", "profiling.ranks", "profiling.type != 'none'",
        {"", "profiling.type='trace'"}),
};

#undef MT_LOW_RANK
#undef MT_DYNAMIC_SCALE
#undef MT_DELAYED
#undef MT_YARN
#undef MT_LATENT
#undef MT_RECORDS_ARE_SPLIT

}  // namespace

std::span<const Rule> unused_setting_rules() { return kUnusedSettingRules; }

}  // namespace mtrain
