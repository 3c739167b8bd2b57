#include "mtrain/recipe/settings/parallel.h"

namespace mtrain {

using enum ResumeClass;

void DistSection::bind(Fields& f) {
  bind_ranks(f);
  bind_pipeline(f);
  bind_context(f);
  bind_data_parallel(f);
  f("backend", backend, "the backend plugin, which selects the device type")
      .plugin("backend")
      .resume(safe);
  f("comm", comm, "the communication plugin; null: the best one for the device")
      .plugin("comm")
      .example("nccl")
      .resume(safe)
      .renamed_from({"distributed_backend"});
  f("nccl_algo", nccl_algo, "algorithms that NCCL may use; empty: NCCL chooses")
      .one_of({"Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "^NVLS"})
      .resume(safe);
  f("timeout_minutes", timeout_minutes,
    "a rank has failed when another rank waits for it longer than this, also while saving a "
    "checkpoint")
      .exclusive_min(0)
      .unit("min")
      .resume(safe)
      .renamed_from({"distributed_timeout_minutes"});
  f("silence_seconds", silence_seconds,
    "the job ends within this time after a rank dies or is stopped; after a rank hangs, within "
    "this time or three times the slowest step, whichever is longer, or within timeout_minutes "
    "while too few steps have been timed; 0: only timeout_minutes applies")
      .min(0)
      .unit("s")
      .resume(safe);
}

void DistSection::bind_ranks(Fields& f) {
  f("nproc", nproc,
    "number of ranks: threads of this process, or the processes that a launcher starts")
      .min(1)
      .max(1024)
      .resume(safe);
  f("tp", tp, "tensor-parallel size")
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
  f("cp", cp, "context-parallel size")
      .min(1)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"context_parallel_size"});
  f("ep", ep, "expert-parallel size")
      .min(1)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"expert_model_parallel_size"});
  f("etp", etp, "tensor-parallel size of experts")
      .min(1)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"expert_tensor_parallel_size"});
  f("sp", sp, "sequence parallelism: shard the residual stream over the tensor-parallel ranks")
      .resume(safe)
      .renamed_from({"sequence_parallel"});
  f("order", order, "order in which ranks are numbered, innermost dimension first")
      .one_of({"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"})
      .resume(safe);
}

void DistSection::bind_pipeline(Fields& f) {
  f("schedule", schedule, "order of forward and backward passes in the pipeline")
      .one_of({"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"})
      .resume(safe);
  f("schedule_file", schedule_file,
    "a file with the schedule, one line per pipeline rank; empty: use dist.schedule")
      .example("zb.txt")
      .resume(safe)
      .input_path();
  f("layout", layout,
    "contents of each stage: E embedding, t block, m multi-token prediction, L loss, | ends a "
    "stage, (…)*n repeats; empty: blocks are divided evenly")
      .example("Et*3|(tt|)*29,m|L")
      .resume(safe)
      .renamed_from({"pipeline_model_parallel_layout"});
  f("first_stage_layers", first_stage_layers,
    "blocks of the first stage; 0: as many as the other stages")
      .min(0)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"num_layers_in_first_pipeline_stage", "decoder_first_pipeline_num_layers"});
  f("last_stage_layers", last_stage_layers,
    "blocks of the last stage; 0: as many as the other stages")
      .min(0)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"num_layers_in_last_pipeline_stage", "decoder_last_pipeline_num_layers"});
  f("account_for_embedding", account_for_embedding,
    "count the embedding as one block when dividing blocks among stages")
      .resume(safe)
      .renamed_from({"account_for_embedding_in_pipeline_split"});
  f("account_for_loss", account_for_loss,
    "count output head and loss as one block when dividing blocks among stages")
      .resume(safe)
      .renamed_from({"account_for_loss_in_pipeline_split"});
  f("microbatch_group_size", microbatch_group_size,
    "schedule=interleaved: number of micro-batches that a rank processes on one virtual stage "
    "before it switches to the next; 0: pp")
      .min(0)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"microbatch_group_size_per_vp_stage",
                     "microbatch_group_size_per_virtual_pipeline_stage"});
  f("variable_seq_lengths", variable_seq_lengths,
    "pipeline stages send the shape of each micro-batch before its data")
      .resume(safe);
}

void DistSection::bind_context(Fields& f) {
  f("cp_comm", cp_comm,
    "how context-parallel ranks exchange keys and values; p2p: a ring, all_gather, a2a: all-to-all "
    "over heads, a2a+p2p: both, by cp_hierarchy; one value for all blocks, or one per block")
      .one_of({"p2p", "all_gather", "a2a", "a2a+p2p"})
      .resume(safe)
      .renamed_from({"cp_comm_type"});
  f("cp_hierarchy", cp_hierarchy,
    "cp_comm=a2a+p2p: ranks of each level, innermost first; their product is cp")
      .min(1)
      .max(kLargestDimension)
      .example("[2, 4]")
      .resume(safe)
      .renamed_from({"hierarchical_context_parallel_sizes"});
  f("dynamic_cp", dynamic_cp,
    "choose the number of context-parallel ranks of each sample by its length")
      .resume(safe)
      .renamed_from({"hybrid_context_parallel", "dynamic_context_parallel"});
  f("max_tokens_per_cp_rank", max_tokens_per_cp_rank,
    "dynamic_cp: maximum number of tokens of one sample on one rank")
      .min(0)
      .max(kLargestDimension)
      .unit("tokens")
      .resume(safe)
      .renamed_from({"max_seqlen_per_dp_cp_rank"});
}

void DistSection::bind_data_parallel(Fields& f) {
  f("zero", zero,
    "ZeRO stage, what data-parallel ranks shard: 0 nothing, 1 optimizer state, 2 also gradients, 3 "
    "also parameters")
      .min(0)
      .max(3)
      .resume(safe);
  f("resident_stages", resident_stages,
    "zero 3: gather parameters by whole stages, and keep at most this many of a rank's dist.vp "
    "stages gathered at once; 0: gather each block when it is computed")
      .min(0)
      .max(kLargestDimension)
      .resume(safe);
  f("hsdp", hsdp,
    "number of data-parallel groups that each hold a full replica; zero shards within a group")
      .min(1)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"num_distributed_optimizer_instances"});
  f("outer_zero", outer_zero, "ZeRO stage across the groups of hsdp: 0 nothing, 1 optimizer state")
      .min(0)
      .max(1)
      .resume(safe);
}

void DdpSection::bind(Fields& f) {
  f("in_order", in_order,
    "keep the gradients of micro-batches separate and add them in the order of the global batch; "
    "the result is bit-identical for any number of ranks, at a cost in memory and time")
      .resume(safe);
  f("overlap_grad_reduce", overlap_grad_reduce, "overlap the reduction of gradients with backward")
      .resume(safe);
  f("overlap_param_gather", overlap_param_gather,
    "overlap the all-gather of parameters with forward")
      .resume(safe);
  f("bucket_size", bucket_size,
    "number of parameters per gradient bucket; 0: chosen from the number of ranks")
      .min(0)
      .unit("parameters")
      .resume(safe);
  f("pad_buckets", pad_buckets,
    "pad buckets to multiples of 65536 elements, the sizes at which NCCL is fastest")
      .resume(safe)
      .renamed_from({"pad_buckets_for_high_nccl_busbw"});
  f("grads_dtype", grads_dtype,
    "data type in which data-parallel ranks exchange gradients; main gradients in memory stay fp32")
      .one_of({"fp32", "bf16"});
  f("accumulate_dtype", accumulate_dtype,
    "grads_dtype=bf16; fp32: ranks exchange shards and sum them in fp32; bf16: the communicator "
    "sums in bf16")
      .one_of({"fp32", "bf16"});
  f("registered_buffers", registered_buffers,
    "allocate long-lived communication buffers (gradients and parameters) in memory registered "
    "with NCCL")
      .resume(safe)
      .renamed_from({"nccl_ub"});
}

void CommOverlapSection::bind(Fields& f) {
  auto overlap = [&](const char* name, bool& value, const char* doc, std::vector<std::string> old) {
    f(name, value, doc).resume(safe).renamed_from(std::move(old));
  };
  overlap("tp", tp,
          "overlap the collectives of tensor-parallel regions with their matrix products, chunk by "
          "chunk",
          {"enabled", "tp_comm_overlap"});
  overlap("p2p", p2p,
          "schedule=interleaved: overlap transfers between stages with computation, in all phases",
          {"overlap_p2p_comm"});
  overlap("batch_p2p", batch_p2p,
          "without p2p: start consecutive transfers of a stage as one batch", {"batch_p2p_comm"});
  overlap("moe", moe,
          "run the forward of one micro-batch together with the backward of another, so that the "
          "all-to-all of tokens of one overlaps with the computation of the other",
          {"overlap_moe_expert_parallel_comm"});
  overlap(
      "delay_wgrad", delay_wgrad,
      "pipelines: compute weight gradients after the gradient of the stage's input has been sent",
      {"delay_wgrad_compute"});
  overlap("dispatch_wgrad", dispatch_wgrad,
          "overlap backward of the all-to-all with the experts' weight gradients",
          {"overlap_dispatch_backward_with_experts_wgrad"});
  overlap("embedding_wgrad", embedding_wgrad,
          "compute the output head's weight gradient when the last stage has finished its backward "
          "passes; keeps the gradients of the logits until then",
          {"defer_embedding_wgrad_compute"});
  f("embedding_wgrad_limit", embedding_wgrad_limit,
    "embedding_wgrad: maximum number of micro-batches to defer; 0: all")
      .min(0)
      .resume(safe)
      .renamed_from({"wgrad_deferral_limit"});
}

}  // namespace mtrain
