// Ranks, shapes and batches.
#include "mtrain/train/rules/rules.h"

namespace mtrain {
namespace {

constexpr Rule kRules[] = {
    {"world-size", "dist.tp", "", "world_size % model_ranks == 0",
     "{world_size} ranks cannot be cut into groups of tp x pp x cp = {model_ranks}",
     "each copy of the model takes tp x pp x cp ranks", "dist.tp; dist.pp; dist.cp"},
    {"expert-world-size", "dist.ep", "dist.ep * dist.etp > 1", "world_size % expert_ranks == 0",
     "{world_size} ranks cannot be cut into groups of etp x ep x pp = {expert_ranks}",
     "experts are laid over the same ranks in a grid of their own", "dist.ep; dist.etp"},
    {"device-comm", "dist.comm", "dist.backend == 'cuda' and world_size > 1", "dist.comm == 'nccl'",
     "{world_size} ranks on GPUs would exchange what they have through the host's memory",
     "right, with the bits of sums in the order of ranks, and slow: for layouts tried out on one GPU", "dist.comm='nccl'",
     Severity::warning},
    {"nccl-backend", "dist.comm", "dist.comm == 'nccl'", "dist.backend == 'cuda'",
     "dist.comm=nccl, and dist.backend is {dist.backend}", "dist.comm=nccl exchanges GPU memory",
     "dist.backend='cuda'; dist.comm='mpi'"},
    {"registered-nccl", "ddp.registered_buffers", "ddp.registered_buffers", "dist.comm == 'nccl'", "dist.comm is {dist.comm}",
     "only NCCL has memory that the network reads and writes by itself", "ddp.registered_buffers=false; dist.comm='nccl'"},
    {"tp-in-domain", "dist.tp", "", "dist.tp <= gpu.per_domain",
     "{dist.tp} ranks do not share one fast interconnect: {gpu.name} has {gpu.per_domain} behind it",
     "tensor parallelism talks in every block; across nodes that takes longer than the computation",
     "dist.tp", Severity::warning},
    {"heads-divide-hidden", "model.heads", "(model.head_dim ?? 0) == 0",
     "model.hidden_size % model.heads == 0",
     "{model.heads} heads do not divide hidden_size ({model.hidden_size})",
     "without head_dim, a head is hidden_size / heads wide", "model.heads"},
    {"head-dim-even", "model.head_dim", "(model.rope.theta ?? 0) > 0 and model.head_dim > 0",
     "model.head_dim % 2 == 0", "{model.head_dim} is odd", "rotary positions turn pairs of elements",
     "model.head_dim"},
    {"kv-heads-divide-heads", "model.kv_heads", "", "model.heads % kv_heads == 0",
     "{kv_heads} key/value heads do not divide {model.heads} query heads",
     "every key/value head serves the same number of query heads", "model.kv_heads"},
    {"tp-divides-heads", "dist.tp", "", "model.heads % dist.tp == 0",
     "{dist.tp} does not divide model.heads ({model.heads})", "each tensor-parallel rank holds whole heads",
     "dist.tp"},
    {"tp-divides-kv-heads", "dist.tp", "", "kv_heads % dist.tp == 0 or dist.tp % kv_heads == 0",
     "{dist.tp} neither divides nor is a multiple of the {kv_heads} key/value heads",
     "a rank holds whole key/value heads, or several ranks share one", "dist.tp; model.kv_heads"},
    {"tp-divides-ffn", "dist.tp", "model.ffn_hidden_size > 0", "model.ffn_hidden_size % dist.tp == 0",
     "{dist.tp} does not divide model.ffn_hidden_size ({model.ffn_hidden_size})",
     "the MLP's width is split evenly", "dist.tp; model.ffn_hidden_size"},
    {"positions", "model.max_positions", "model.max_positions > 0", "model.max_positions >= model.seq_length",
     "the position table has {model.max_positions} rows for samples of {model.seq_length} tokens", "",
     "model.max_positions; model.seq_length=model.max_positions"},
    {"sp-needs-tp", "dist.sp", "dist.sp", "dist.tp > 1", "sequence parallelism needs dist.tp > 1",
     "it splits the residual stream over the tensor-parallel ranks", "dist.sp"},
    {"sp-divides-seq", "model.seq_length", "dist.sp", "model.seq_length % (dist.tp * dist.cp) == 0",
     "{model.seq_length} tokens cannot be split over tp x cp = {dist.tp * dist.cp} ranks",
     "each rank of a tensor-parallel group holds an equal part of the sequence", "model.seq_length; dist.tp"},
    {"tp-overlap-needs-sp", "comm_overlap.tp", "comm_overlap.tp", "dist.sp",
     "hiding tensor-parallel communication needs dist.sp",
     "what is hidden is the gathering and scattering of the sequence", "comm_overlap.tp; dist.sp"},
    {"global-batch", "train.global_batch_size", "global_batch % train.micro_batch_size != 0", "false",
     "{global_batch} is no multiple of train.micro_batch_size ({train.micro_batch_size})",
     "global = micro x accumulation x data-parallel ranks, so that every update sees whole samples",
     "train.global_batch_size; train.micro_batch_size"},
    {"data-parallel-batch", "train.global_batch_size",
     "global_batch % train.micro_batch_size == 0 and world_size % model_ranks == 0",
     "global_batch % (train.micro_batch_size * dp) == 0",
     "{global_batch} is no multiple of micro_batch_size ({train.micro_batch_size}) x {dp} data-parallel "
     "ranks",
     "global = micro x accumulation x data-parallel ranks, so that every update sees whole samples",
     "train.global_batch_size; train.micro_batch_size"},
    {"eval-batch", "validation.global_batch_size",
     "validation.global_batch_size > 0 or validation.micro_batch_size > 0",
     "eval_global % (eval_micro * known_dp) == 0",
     "{eval_global} is no multiple of the micro-batch ({eval_micro}) x {known_dp} data-parallel ranks",
     "evaluation takes whole samples too", "validation.global_batch_size; validation.micro_batch_size"},
    {"one-batch-size", "train.batch_schedule", "len(train.batch_schedule) > 0",
     "train.global_batch_size == 0", "the schedule and train.global_batch_size both set the batch",
     "one of them has to go", "train.global_batch_size=0; train.batch_schedule=[]"},
};

}  // namespace

std::span<const Rule> world_rules() {
  return kRules;
}

}  // namespace mtrain
