// Settings by the names that Megatron-LM, Megatron-Bridge and Hugging Face have for them: each is
// understood, or answered with ours.
#include <doctest/doctest.h>

#include "built_plugins.h"
#include "mtrain/base/text.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"

using namespace mtrain;

namespace {

struct KnownName {
  const char *theirs, *ours;
};

// Under the sections that Megatron-Bridge has them in.
const KnownName kDense[] = {
    {"train.train_iters", "train.steps"},
    {"train.rampup_batch_size", "train.batch_schedule"},
    {"train.exit_duration_in_mins", "train.max_minutes"},
    {"train.iterations_to_skip", "train.skip_steps"},
    {"train.check_weight_hash_across_dp_replicas_interval", "train.weight_hash_interval"},
    {"validation.eval_iters", "validation.steps"},
    {"validation.eval_interval", "validation.interval"},
    {"validation.eval_global_batch_size", "validation.global_batch_size"},
    {"optimizer.optimizer", "optimizer.type"},
    {"optimizer.decoupled_lr", "optimizer.embedding_lr"},
    {"optimizer.decoupled_min_lr", "optimizer.embedding_min_lr"},
    {"optimizer.adam_beta1", "optimizer.beta1"},
    {"optimizer.adam_beta2", "optimizer.beta2"},
    {"optimizer.adam_eps", "optimizer.eps"},
    {"optimizer.grad_norm_skip_threshold", "optimizer.skip_grad_norm"},
    {"optimizer.optimizer_offload_fraction", "optimizer.offload_fraction"},
    {"optimizer.overlap_cpu_optimizer_d2h_h2d", "optimizer.offload_overlap"},
    {"optimizer.use_distributed_optimizer", "dist.zero"},
    {"optimizer.main_params_dtype", "mixed_precision.params_dtype"},
    {"optimizer.main_grads_dtype", "mixed_precision.grads_dtype"},
    {"scheduler.lr_decay_style", "scheduler.type"},
    {"scheduler.lr_decay_iters", "scheduler.decay_steps"},
    {"scheduler.lr_wsd_decay_style", "scheduler.wsd_decay"},
    {"scheduler.lr_warmup_iters", "scheduler.warmup_steps"},
    {"scheduler.lr_warmup_init", "scheduler.warmup_init_lr"},
    {"ddp.grad_reduce_in_fp32", "ddp.grads_dtype"},
    {"ddp.pad_buckets_for_high_nccl_busbw", "ddp.pad_buckets"},
    {"ddp.num_distributed_optimizer_instances", "dist.hsdp"},
    {"ddp.data_parallel_sharding_strategy", "dist.zero"},
    {"ddp.outer_dp_sharding_strategy", "dist.outer_zero"},
    {"ddp.nccl_ub", "ddp.registered_buffers"},
    {"logger.log_interval", "logger.interval"},
    {"logger.log_params_norm", "logger.params_norm"},
    {"tokenizer.tokenizer_type", "tokenizer.type"},
    {"tokenizer.tokenizer_model", "tokenizer.path"},
    {"checkpoint.save", "checkpoint.dir"},
    {"checkpoint.save_interval", "checkpoint.interval"},
    {"checkpoint.pretrained_checkpoint", "model.init_from"},
    {"checkpoint.async_save", "checkpoint.async"},
    {"checkpoint.most_recent_k", "checkpoint.keep"},
    {"checkpoint.save_retain_interval", "checkpoint.retain_interval"},
    {"checkpoint.non_persistent_local_ckpt_dir", "checkpoint.local_dir"},
    {"dist.distributed_timeout_minutes", "dist.timeout_minutes"},
    {"profiling.profile_step_start", "profiling.start"},
    {"comm_overlap.tp_comm_overlap", "comm_overlap.tp"},
    {"comm_overlap.overlap_p2p_comm", "comm_overlap.p2p"},
    {"comm_overlap.overlap_moe_expert_parallel_comm", "comm_overlap.moe"},
    {"peft.dim", "peft.rank"},
    {"peft.target_modules", "peft.targets"},
    {"mixed_precision.fp8_param_gather", "mixed_precision.fp8_params"},
    {"model.num_layers", "model.layers"},
    {"model.num_attention_heads", "model.heads"},
    {"model.num_query_groups", "model.kv_heads"},
    {"model.kv_channels", "model.head_dim"},
    {"model.make_vocab_size_divisible_by", "model.vocab_multiple"},
    {"model.layernorm_epsilon", "model.norm_eps"},
    {"model.init_method_std", "model.init_std"},
    {"model.rotary_base", "model.rope.theta"},
    {"model.rotary_percent", "model.rope.percent"},
    {"model.rotary_interleaved", "model.rope.interleaved"},
    {"model.rotary_scaling_factor", "model.rope.factor"},
    {"model.normalization", "model.norm"},
    {"model.layernorm_zero_centered_gamma", "model.norm_zero_centered"},
    {"model.gated_linear_unit", "model.mlp_gated"},
    {"model.add_qkv_bias", "model.attention.qkv_bias"},
    {"model.qk_layernorm", "model.attention.qk_norm"},
    {"model.softmax_type", "model.attention.softmax"},
    {"model.window_size", "model.attention.window"},
    {"model.attention_dropout", "model.attention.dropout"},
    {"model.tensor_model_parallel_size", "dist.tp"},
    {"model.pipeline_model_parallel_size", "dist.pp"},
    {"model.virtual_pipeline_model_parallel_size", "dist.vp"},
    {"model.context_parallel_size", "dist.cp"},
    {"model.expert_model_parallel_size", "dist.ep"},
    {"model.expert_tensor_parallel_size", "dist.etp"},
    {"model.sequence_parallel", "dist.sp"},
    {"model.cp_comm_type", "dist.cp_comm"},
    {"model.pipeline_model_parallel_layout", "dist.layout"},
    {"model.num_layers_in_first_pipeline_stage", "dist.first_stage_layers"},
    {"model.account_for_loss_in_pipeline_split", "dist.account_for_loss"},
    {"model.recompute_granularity", "model.recompute"},
    {"model.recompute_num_layers", "model.recompute_layers"},
    {"model.distribute_saved_activations", "model.recompute_distribute"},
    {"model.cuda_graph_impl", "cuda_graph.type"},
    {"model.cpu_offloading_num_layers", "offload.layers"},
    {"model.offload_modules", "offload.modules"},
    {"model.num_hidden_layers", "model.layers"},
    {"model.num_key_value_heads", "model.kv_heads"},
    {"model.intermediate_size", "model.ffn_hidden_size"},
    {"model.rms_norm_eps", "model.norm_eps"},
    {"model.rope_theta", "model.rope.theta"},
    {"model.tie_word_embeddings", "model.tie_embeddings"},
};

const KnownName kExperts[] = {
    {"model.num_moe_experts", "model.moe.experts"},
    {"model.moe_router_topk", "model.moe.top_k"},
    {"model.moe_ffn_hidden_size", "model.moe.ffn_hidden_size"},
    {"model.moe_layer_freq", "model.moe.layer_freq"},
    {"model.moe_router_load_balancing_type", "model.moe.router.balancing"},
    {"model.moe_aux_loss_coeff", "model.moe.router.aux_loss_coeff"},
    {"model.moe_z_loss_coeff", "model.moe.router.z_loss_coeff"},
    {"model.moe_router_score_function", "model.moe.router.score"},
    {"model.moe_router_num_groups", "model.moe.router.groups"},
    {"model.moe_router_group_topk", "model.moe.router.group_top_k"},
    {"model.moe_router_enable_expert_bias", "model.moe.router.bias"},
    {"model.moe_token_dispatcher_type", "model.moe.dispatcher"},
    {"model.moe_expert_capacity_factor", "model.moe.capacity_factor"},
    {"model.moe_shared_expert_intermediate_size", "model.moe.shared_ffn_hidden_size"},
    {"model.qk_pos_emb_head_dim", "model.mla.rope_head_dim"},
    {"model.mtp_num_layers", "model.mtp.layers"},
    {"model.num_experts_per_tok", "model.moe.top_k"},
    {"model.n_routed_experts", "model.moe.experts"},
    {"model.first_k_dense_replace", "model.moe.first_dense_layers"},
    {"model.routed_scaling_factor", "model.moe.router.scaling"},
    {"model.qk_nope_head_dim", "model.mla.qk_head_dim"},
};

/// Which of our settings a report says that a foreign name means.
std::string answer(const Report& report, const std::string& theirs) {
  for (const auto& fault : report.diagnostics()) {
    bool names_ours = fault.code == "renamed" || fault.code == "conflict";
    std::string said = names_ours ? fault.message : fault.code == "unknown-key" ? fault.help : "";
    if (fault.path != theirs || said.empty()) continue;
    std::string_view rest = said;
    for (std::string_view start : {"is another name for ", "sets the same setting as ",
                                   "did you mean ", "use ", "the setting would be "})
      if (rest.substr(0, start.size()) == start) rest.remove_prefix(start.size());
    return std::string(rest.substr(0, rest.find_first_of(" ?:=")));
  }
  return "nothing";
}

std::string meant_by(const std::string& theirs, const std::string& type) {
  static const SchemaCatalog catalog = schema_catalog(testing::built_plugins());
  // Only what must be said, so that no setting is said twice.
  ConfigRequest request{.recipe = "r.yaml",
                        .text = cat("model: {type: ", type, "}\ntokenizer: hf\ndataset: mock\n"),
                        .overrides = {{cat("++", theirs, "=1"), 2}}};
  Report report;
  ConfigContainer::load(request, catalog, report);
  return answer(report, theirs);
}

}  // namespace

TEST_CASE("a setting by another trainer's name is understood or answered with ours") {
  for (const auto& row : kDense)
    CHECK(cat(row.theirs, ": ", meant_by(row.theirs, "llama")) == cat(row.theirs, ": ", row.ours));
  for (const auto& row : kExperts)
    CHECK(cat(row.theirs, ": ", meant_by(row.theirs, "moe")) == cat(row.theirs, ": ", row.ours));
}
