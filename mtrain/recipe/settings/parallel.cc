#include "mtrain/recipe/settings/parallel.h"

namespace mtrain {

using enum ResumeClass;

namespace {
constexpr const char *kSharded = "this variant of sharded data parallelism",
                     *kData = "this variant of the gradient reduction";
}  // namespace

void DistSection::bind(Fields& f) {
  bind_ranks(f);
  bind_pipeline(f);
  bind_context(f);
  bind_data_parallel(f);
  f("backend", backend, "device kind").plugin("backend").resume(safe);
  f("comm", comm, "communication backend; null: the best one for the device")
      .plugin("comm")
      .example("nccl")
      .resume(safe)
      .renamed_from({"distributed_backend"});
  f("nccl_algo", nccl_algo, "algorithms that NCCL may use; empty: NCCL chooses")
      .one_of({"Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "^NVLS"})
      .resume(safe);
  f("timeout_minutes", timeout_minutes,
    "a rank for which others wait longer than this has failed, even while it saves")
      .exclusive_min(0)
      .unit("min")
      .resume(safe)
      .renamed_from({"distributed_timeout_minutes"});
  f("silence_seconds", silence_seconds,
    "the job ends within this time, or three times its slowest steps, after a rank died, stopped "
    "or hangs; 0: only timeout_minutes is used")
      .min(0)
      .unit("s")
      .resume(safe);
}

void DistSection::bind_ranks(Fields& f) {
  f("nproc", nproc, "number of ranks: threads of this process, or processes that mpirun starts")
      .min(1)
      .max(1024)
      .resume(safe);
  f("tp", tp, "tensor-parallel ranks")
      .min(1)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"tensor_model_parallel_size"});
  f("pp", pp, "pipeline stages")
      .min(1)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"pipeline_model_parallel_size"});
  f("vp", vp, "virtual stages per pipeline rank")
      .min(1)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from(
          {"virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"});
  f("cp", cp, "context-parallel ranks")
      .min(1)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"context_parallel_size"});
  f("ep", ep, "expert-parallel ranks")
      .min(1)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"expert_model_parallel_size"});
  f("etp", etp, "tensor-parallel ranks of experts")
      .min(1)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"expert_tensor_parallel_size"});
  f("sp", sp, "sequence parallel: the residual stream is split over tp")
      .resume(safe)
      .renamed_from({"sequence_parallel"});
  f("order", order, "order of the axes in the numbering of ranks, nearest first")
      .one_of({"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"})
      .resume(safe);
}

void DistSection::bind_pipeline(Fields& f) {
  f("schedule", schedule, "order of forward and backward passes of a pipeline")
      .one_of({"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"})
      .resume(safe);
  f("schedule_file", schedule_file,
    "file of a schedule, one line per pipeline rank; empty: dist.schedule")
      .example("zb.txt")
      .resume(safe)
      .input_path();
  f("layout", layout,
    "content of each stage: E embedding, t block, m multi-token prediction, L loss, | ends a "
    "stage, (…)*n repeats; empty: blocks are divided evenly")
      .example("Et*3|(tt|)*29,m|L")
      .resume(safe)
      .renamed_from({"pipeline_model_parallel_layout"});
  f("first_stage_layers", first_stage_layers,
    "blocks of the first stage; 0: the same as other stages")
      .min(0)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"num_layers_in_first_pipeline_stage", "decoder_first_pipeline_num_layers"});
  f("last_stage_layers", last_stage_layers, "blocks of the last stage; 0: the same as other stages")
      .min(0)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"num_layers_in_last_pipeline_stage", "decoder_last_pipeline_num_layers"});
  f("account_for_embedding", account_for_embedding,
    "count the embedding as a block when blocks are divided among stages")
      .resume(safe)
      .renamed_from({"account_for_embedding_in_pipeline_split"});
  f("account_for_loss", account_for_loss,
    "count head and loss as a block when blocks are divided among stages")
      .resume(safe)
      .renamed_from({"account_for_loss_in_pipeline_split"});
  f("microbatch_group_size", microbatch_group_size,
    "interleaved: consecutive micro-batches of one virtual stage; 0: pp")
      .min(0)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"microbatch_group_size_per_vp_stage",
                     "microbatch_group_size_per_virtual_pipeline_stage"});
  f("variable_seq_lengths", variable_seq_lengths,
    "send the shape of every micro-batch between stages")
      .resume(safe);
}

void DistSection::bind_context(Fields& f) {
  f("cp_comm", cp_comm,
    "how context-parallel ranks exchange keys and values: p2p (ring), all_gather, a2a over heads, "
    "a2a+p2p by cp_hierarchy; one for all blocks, or one for each")
      .one_of({"p2p", "all_gather", "a2a", "a2a+p2p"})
      .resume(safe)
      .renamed_from({"cp_comm_type"});
  f("cp_hierarchy", cp_hierarchy,
    "a2a+p2p: ranks of each level, the nearest first; their product is cp")
      .min(1)
      .max(kLargestDimension)
      .example("[2, 4]")
      .resume(safe)
      .renamed_from({"hierarchical_context_parallel_sizes"});
  f("dynamic_cp", dynamic_cp,
    "the number of context-parallel ranks of each sample follows from its length")
      .resume(safe)
      .renamed_from({"hybrid_context_parallel", "dynamic_context_parallel"});
  f("max_tokens_per_cp_rank", max_tokens_per_cp_rank,
    "dynamic_cp: maximum number of tokens of one sample on one rank")
      .min(0)
      .max(kLargestDimension)
      .unit("tokens")
      .resume(safe)
      .renamed_from({"max_seqlen_per_dp_cp_rank"});
  f("eval_cp", eval_cp, "context-parallel ranks in evaluation; 0: cp")
      .min(0)
      .max(kLargestDimension)
      .needs("another number of context-parallel ranks in evaluation")
      .resume(safe)
      .renamed_from({"eval_context_parallel_size"});
}

void DistSection::bind_data_parallel(Fields& f) {
  f("zero", zero,
    "ZeRO stage, what is sharded over data-parallel ranks: 0 nothing, 1 optimizer state, 2 also "
    "gradients, 3 also parameters")
      .min(0)
      .max(3)
      .resume(safe)
      .renamed_from({"data_parallel_sharding_strategy", "use_distributed_optimizer"});
  f("hsdp", hsdp,
    "number of groups of data-parallel ranks that each hold a full replica; zero shards within a "
    "group")
      .min(1)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"num_distributed_optimizer_instances"});
  f("outer_zero", outer_zero, "ZeRO stage across the groups of hsdp")
      .min(0)
      .max(1)
      .resume(safe)
      .renamed_from({"outer_dp_sharding_strategy"});
}

void DdpSection::bind(Fields& f) {
  f("in_order", in_order,
    "keep the gradients of micro-batches separate and add them in the order of the global batch: "
    "bitwise the same for any number of ranks, at the cost of memory and time")
      .resume(safe);
  f("overlap_grad_reduce", overlap_grad_reduce, "overlap gradient reduction with backward")
      .resume(safe);
  f("overlap_param_gather", overlap_param_gather,
    "overlap the all-gather of parameters with forward")
      .resume(safe);
  f("align_param_gather", align_param_gather, "all pipeline stages gather at the same time")
      .needs(kSharded)
      .resume(safe);
  f("bucket_size", bucket_size,
    "number of parameters per gradient bucket; 0: chosen by the number of ranks")
      .min(0)
      .unit("parameters")
      .resume(safe);
  f("pad_buckets", pad_buckets, "pad buckets to sizes at which the network is fastest")
      .needs(kData)
      .resume(safe)
      .renamed_from({"pad_buckets_for_high_nccl_busbw"});
  f("average_in_collective", average_in_collective, "average in the reduction instead of summing")
      .needs(kData);
  f("grads_dtype", grads_dtype, "type in which gradients are communicated")
      .one_of({"fp32", "bf16"})
      .needs(kData)
      .renamed_from({"grad_reduce_in_fp32"});
  f("accumulate_dtype", accumulate_dtype, "type in which a reduction of bf16 gradients accumulates")
      .one_of({"fp32", "bf16"})
      .needs(kData)
      .renamed_from({"reduce_scatter_with_fp32_accumulation"});
  f("registered_buffers", registered_buffers,
    "allocate persistent communication buffers of gradients and parameters by NCCL, and register "
    "them with it")
      .resume(safe)
      .renamed_from({"nccl_ub"});
  f("double_buffer", double_buffer, "zero 3: gathered parameters have two fixed buffers")
      .needs(kSharded)
      .resume(safe)
      .renamed_from({"fsdp_double_buffer"});
}

void CommOverlapSection::bind(Fields& f) {
  auto overlap = [&](const char* name, bool& value, const char* doc, std::vector<std::string> old) {
    f(name, value, doc).resume(safe).renamed_from(std::move(old));
  };
  overlap("tp", tp,
          "overlap tensor-parallel communication with the matrix products at the edges of "
          "tensor-parallel regions, in chunks",
          {"enabled", "tp_comm_overlap"});
  overlap("p2p", p2p,
          "interleaved pipelines: overlap transfers between stages with computation, in all phases",
          {"overlap_p2p_comm"});
  overlap("batch_p2p", batch_p2p, "without p2p: start consecutive transfers of a stage together",
          {"batch_p2p_comm"});
  overlap("warmup_flush", warmup_flush, "overlap p2p in warmup and flush: always part of p2p",
          {"overlap_p2p_comm_warmup_flush"});
  overlap("moe", moe,
          "overlap the all-to-all of experts with another micro-batch: forward of one overlaps "
          "with backward of another",
          {"overlap_moe_expert_parallel_comm"});
  overlap("delay_wgrad", delay_wgrad,
          "pipelines: compute weight gradients after the gradient of a stage's input is sent",
          {"delay_wgrad_compute"});
  overlap("early_attn_release", early_attn_release,
          "free attention's memory before the all-to-all: always the case",
          {"ep_overlap_early_attn_memory_release"});
  overlap("dispatch_wgrad", dispatch_wgrad,
          "overlap backward of the all-to-all with the experts' weight gradients",
          {"overlap_dispatch_backward_with_experts_wgrad"});
  overlap("embedding_wgrad", embedding_wgrad,
          "defer the head's weight gradient to the end of the step on the last stage",
          {"defer_embedding_wgrad_compute"});
  f("embedding_wgrad_limit", embedding_wgrad_limit,
    "embedding_wgrad: maximum number of deferred micro-batches; 0: all")
      .min(0)
      .resume(safe)
      .renamed_from({"wgrad_deferral_limit"});
}

}  // namespace mtrain
