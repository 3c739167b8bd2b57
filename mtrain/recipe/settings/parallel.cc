#include "mtrain/recipe/settings/parallel.h"

namespace mtrain {

using enum ResumeClass;

void DistSection::bind(Fields& f) {
  bind_ranks(f);
  bind_pipeline(f);
  bind_context(f);
  bind_data_parallel(f);
  f("backend", backend, "device kind").plugin("backend").resume(safe);
  f("comm", comm, "how ranks talk; null: the best one for the device")
      .plugin("comm")
      .example("nccl")
      .resume(safe)
      .renamed_from({"distributed_backend"});
  f("nccl_algo", nccl_algo, "algorithms that NCCL may use; empty: its own choice")
      .one_of({"Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "^NVLS"})
      .resume(safe);
  f("timeout_minutes", timeout_minutes,
    "a rank that is waited for longer than this, be it saving, has failed")
      .exclusive_min(0)
      .unit("min")
      .resume(safe)
      .renamed_from({"distributed_timeout_minutes"});
  f("silence_seconds", silence_seconds,
    "the job ends within this time, or three times its slowest steps, after a rank died, stopped "
    "or got stuck; 0: only "
    "timeout_minutes counts")
      .min(0)
      .unit("s")
      .resume(safe);
}

void DistSection::bind_ranks(Fields& f) {
  f("nproc", nproc,
    "ranks, which share out every batch: threads of this process, or as many as mpirun starts")
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
  f("order", order, "how ranks are numbered, the nearest first")
      .one_of({"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"})
      .resume(safe);
}

void DistSection::bind_pipeline(Fields& f) {
  f("schedule", schedule, "order of forward and backward passes of a pipeline")
      .one_of({"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"})
      .resume(safe);
  f("schedule_file", schedule_file,
    "a schedule written down, one line per pipeline rank; empty: dist.schedule")
      .example("zb.txt")
      .resume(safe)
      .input_path();
  f("layout", layout,
    "what each stage holds: E embedding, t block, m multi-token prediction, L loss, | ends a "
    "stage, (…)*n "
    "repeats; "
    "empty: blocks are shared out evenly")
      .example("Et*3|(tt|)*29,m|L")
      .resume(safe)
      .renamed_from({"pipeline_model_parallel_layout"});
  f("first_stage_layers", first_stage_layers, "blocks of the first stage; 0: as many as any")
      .min(0)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"num_layers_in_first_pipeline_stage", "decoder_first_pipeline_num_layers"});
  f("last_stage_layers", last_stage_layers, "blocks of the last stage; 0: as many as any")
      .min(0)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"num_layers_in_last_pipeline_stage", "decoder_last_pipeline_num_layers"});
  f("account_for_embedding", account_for_embedding,
    "the embedding counts as a block when blocks are shared out")
      .resume(safe)
      .renamed_from({"account_for_embedding_in_pipeline_split"});
  f("account_for_loss", account_for_loss,
    "head and loss count as a block when blocks are shared out")
      .resume(safe)
      .renamed_from({"account_for_loss_in_pipeline_split"});
  f("microbatch_group_size", microbatch_group_size,
    "interleaved: micro-batches that pass one virtual stage before the next one's turn; 0: pp")
      .min(0)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"microbatch_group_size_per_vp_stage",
                     "microbatch_group_size_per_virtual_pipeline_stage"});
  f("variable_seq_lengths", variable_seq_lengths,
    "stages send each other the shape of every micro-batch")
      .resume(safe);
}

void DistSection::bind_context(Fields& f) {
  f("cp_comm", cp_comm,
    "how context-parallel ranks share keys and values: p2p a ring, all_gather, a2a over heads, "
    "a2a+p2p both "
    "by "
    "cp_hierarchy; one for all blocks, or one for each")
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
    "each sample gets as many context-parallel ranks as its length asks for")
      .resume(safe)
      .renamed_from({"hybrid_context_parallel", "dynamic_context_parallel"});
  f("max_tokens_per_cp_rank", max_tokens_per_cp_rank,
    "dynamic_cp: most tokens of one sample on one rank")
      .min(0)
      .max(kLargestDimension)
      .unit("tokens")
      .resume(safe)
      .renamed_from({"max_seqlen_per_dp_cp_rank"});
}

void DistSection::bind_data_parallel(Fields& f) {
  f("zero", zero,
    "what data-parallel ranks share: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters "
    "too")
      .min(0)
      .max(3)
      .resume(safe)
      .renamed_from({"data_parallel_sharding_strategy", "use_distributed_optimizer"});
  f("hsdp", hsdp,
    "groups of data-parallel ranks that each hold everything; zero shares within a group")
      .min(1)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"num_distributed_optimizer_instances"});
  f("outer_zero", outer_zero, "what is shared across the groups of hsdp, counted as in zero")
      .min(0)
      .max(1)
      .resume(safe)
      .renamed_from({"outer_dp_sharding_strategy"});
}

void DdpSection::bind(Fields& f) {
  f("in_order", in_order,
    "micro-batches' gradients are kept apart and added in the order of the global batch: the same "
    "bits for any number of "
    "ranks, for more memory and time")
      .resume(safe);
  f("overlap_grad_reduce", overlap_grad_reduce, "reduce gradients while backward still runs")
      .resume(safe);
  f("overlap_param_gather", overlap_param_gather, "gather parameters while forward already runs")
      .resume(safe);
  f("bucket_size", bucket_size,
    "parameters whose gradients travel together; 0: chosen by the number of ranks")
      .min(0)
      .unit("parameters")
      .resume(safe);
  f("pad_buckets", pad_buckets,
    "pad buckets to multiples of 65536 elements, at whose sizes NCCL is fastest")
      .resume(safe)
      .renamed_from({"pad_buckets_for_high_nccl_busbw"});
  f("grads_dtype", grads_dtype,
    "type in which data-parallel ranks send each other gradients; they add up in fp32 in memory")
      .one_of({"fp32", "bf16"})
      .renamed_from({"grad_reduce_in_fp32"});
  f("accumulate_dtype", accumulate_dtype,
    "grads_dtype=bf16; fp32: ranks exchange parts and sum them in fp32; bf16: the communicator "
    "sums, "
    "and rounds to bf16")
      .one_of({"fp32", "bf16"})
      .renamed_from({"reduce_scatter_with_fp32_accumulation"});
  f("registered_buffers", registered_buffers,
    "gradients and values that stay in memory and go from rank to rank are in memory of NCCL that "
    "is registered with it")
      .resume(safe)
      .renamed_from({"nccl_ub"});
}

void CommOverlapSection::bind(Fields& f) {
  auto overlap = [&](const char* name, bool& value, const char* doc, std::vector<std::string> old) {
    f(name, value, doc).resume(safe).renamed_from(std::move(old));
  };
  overlap("tp", tp,
          "the stream travels behind the products at the edges of tensor-parallel regions, piece "
          "by piece",
          {"enabled", "tp_comm_overlap"});
  overlap("p2p", p2p,
          "interleaved pipelines: transfers between stages behind computation, in all phases",
          {"overlap_p2p_comm"});
  overlap("batch_p2p", batch_p2p,
          "without p2p: transfers of a stage that follow each other are begun together",
          {"batch_p2p_comm"});
  overlap("moe", moe,
          "exchange of tokens between experts behind another micro-batch: forward and backward "
          "side by side",
          {"overlap_moe_expert_parallel_comm"});
  overlap(
      "delay_wgrad", delay_wgrad,
      "pipelines: weight gradients are computed when the gradient of a stage's input is on its way",
      {"delay_wgrad_compute"});
  overlap("dispatch_wgrad", dispatch_wgrad,
          "backward of the exchange behind the experts' weight gradients",
          {"overlap_dispatch_backward_with_experts_wgrad"});
  overlap("embedding_wgrad", embedding_wgrad,
          "the head's weight gradient is computed at the end of the last stage, for memory",
          {"defer_embedding_wgrad_compute"});
  f("embedding_wgrad_limit", embedding_wgrad_limit,
    "embedding_wgrad: most micro-batches that are put off; 0: all")
      .min(0)
      .resume(safe)
      .renamed_from({"wgrad_deferral_limit"});
}

}  // namespace mtrain
