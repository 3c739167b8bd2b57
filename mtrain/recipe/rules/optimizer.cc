// Optimizer state and how data-parallel ranks share it.
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {
namespace {

#define MT_SMALL_STATE                                                                  \
  "mixed_precision.params_dtype != 'fp32' or mixed_precision.grads_dtype != 'fp32' or " \
  "optimizer.exp_avg_dtype != 'fp32' or optimizer.exp_avg_sq_dtype != 'fp32'"

constexpr Rule kOptimizerRules[] = {
    {"gather-needs-zero", "ddp.overlap_param_gather", "ddp.overlap_param_gather",
     "dist.zero >= 1 and ddp.overlap_grad_reduce",
     "needs dist.zero >= 1 and ddp.overlap_grad_reduce",
     "parameters are gathered only if their update is sharded, and the reduction of the previous "
     "step's gradients must overlap",
     "ddp.overlap_param_gather; dist.zero; ddp.overlap_grad_reduce"},
    {"small-state-optimizer", "optimizer.type", MT_SMALL_STATE, "optimizer.type == 'adamw'",
     "only adamw keeps its state in low precision, and this is {optimizer.type}", "",
     "optimizer.type='adamw'"},
    {"small-state-sharded", "dist.zero", MT_SMALL_STATE, "dist.zero >= 1",
     "state in low precision needs dist.zero >= 1",
     "the update rounds on the rank that owns a shard", "dist.zero"},
    {"offload-sharded", "optimizer.offload_fraction", "optimizer.offload_fraction > 0",
     "dist.zero >= 1 and optimizer.type == 'adamw'", "needs dist.zero >= 1 and optimizer adamw", "",
     "optimizer.offload_fraction=0; dist.zero"},
    {"offload-overlap", "optimizer.offload_overlap", "optimizer.offload_overlap",
     "optimizer.offload_fraction > 0", "nothing is offloaded", "",
     "optimizer.offload_overlap; optimizer.offload_fraction=1.0"},
    {"accumulate-dtype", "ddp.accumulate_dtype", "ddp.accumulate_dtype == 'bf16'",
     "ddp.grads_dtype == 'bf16'", "gradients that are communicated in fp32 are accumulated in fp32",
     "", "ddp.accumulate_dtype; ddp.grads_dtype"},
    {"in-order-grads-dtype", "ddp.grads_dtype", "ddp.in_order", "ddp.grads_dtype == 'fp32'",
     "with ddp.in_order gradients are communicated in fp32",
     "rounding would depend on the number of ranks, and in_order gives the same bits for any "
     "number",
     "ddp.grads_dtype='fp32'; ddp.in_order=false"},
    {"in-order-whole-gradients", "ddp.in_order", "ddp.in_order", "dist.zero <= 1",
     "each micro-batch's gradients are kept unsharded, but dist.zero={dist.zero} shards gradients",
     "", "ddp.in_order=false; dist.zero"},
    {"hsdp-divides-dp", "dist.hsdp", "dist.hsdp > 1 and world_size % model_ranks == 0",
     "dp % dist.hsdp == 0", "{dp} data-parallel ranks cannot be divided into {dist.hsdp} groups",
     "", "dist.hsdp"},
    {"hsdp-needs-zero", "dist.hsdp", "dist.hsdp > 1", "dist.zero >= 1",
     "hsdp has no effect if nothing is sharded within a group", "", "dist.hsdp=1; dist.zero"},
    {"outer-needs-hsdp", "dist.outer_zero", "dist.outer_zero > 0",
     "dist.hsdp > 1 and dist.zero == 3",
     "sharding across groups needs dist.hsdp > 1 and dist.zero=3", "",
     "dist.outer_zero; dist.zero"},
    {"resident-needs-zero", "dist.resident_stages", "dist.resident_stages > 0", "dist.zero == 3",
     "only dist.zero=3 gathers parameters",
     "with a lower stage, every rank holds all parameters of its stages",
     "dist.resident_stages=0; dist.zero"},
    {"resident-stages", "dist.resident_stages", "dist.resident_stages > 1",
     "dist.resident_stages <= dist.vp",
     "a rank has {dist.vp} stages (dist.vp) and cannot keep {dist.resident_stages} gathered", "",
     "dist.resident_stages=dist.vp; dist.vp"},
    {"hash-needs-replicas", "train.weight_hash_interval", "train.weight_hash_interval > 0",
     "dist.zero < 3", "with dist.zero=3 no two ranks hold the same parameters", "",
     "train.weight_hash_interval=0; dist.zero"},
    {"min-lr", "scheduler.min_lr", "not scheduler.type in ['constant', 'stages']",
     "scheduler.min_lr <= optimizer.lr",
     "{scheduler.min_lr} is above optimizer.lr ({optimizer.lr})",
     "the learning rate would rise instead of decaying", "scheduler.min_lr=optimizer.lr / 10"},
    {"embedding-min-lr", "optimizer.embedding_min_lr",
     "optimizer.embedding_min_lr != null and optimizer.embedding_lr != null",
     "optimizer.embedding_min_lr <= optimizer.embedding_lr",
     "{optimizer.embedding_min_lr} is above optimizer.embedding_lr ({optimizer.embedding_lr})", "",
     "optimizer.embedding_min_lr=optimizer.embedding_lr / 10"},
    {"embedding-min-lr-alone", "optimizer.embedding_min_lr", "optimizer.embedding_min_lr != null",
     "optimizer.embedding_lr != null", "needs optimizer.embedding_lr", "",
     "optimizer.embedding_min_lr=null; optimizer.embedding_lr=optimizer.lr"},
    {"warmup", "scheduler.warmup_steps", "decays_by_end and train.steps > 0",
     "scheduler.warmup_steps < decay_end",
     "warmup ({scheduler.warmup_steps} steps) lasts until the decay ends at step {decay_end}, "
     "where "
     "the rate drops from optimizer.lr to scheduler.min_lr at once",
     "the rate decays between the end of warmup and decay_steps; a share of train.steps, such as "
     "5%, fits every length",
     "scheduler.warmup_steps=decay_end // 10", Severity::warning},
    {"warmup-run", "scheduler.warmup_steps", "not decays_by_end and train.steps > 0",
     "scheduler.warmup_steps <= train.steps",
     "the run ends after {train.steps} of {scheduler.warmup_steps} steps of warmup",
     "the rate does not reach optimizer.lr; a share of train.steps, such as 5%, fits every length",
     "scheduler.warmup_steps=train.steps // 10", Severity::warning},
    {"stable-steps", "scheduler.stable_steps",
     "scheduler.type == 'wsd' and scheduler.stable_steps > 0 and train.steps > 0",
     "scheduler.warmup_steps + scheduler.stable_steps < decay_end",
     "warmup and plateau end at step {scheduler.warmup_steps + scheduler.stable_steps}, so no "
     "steps are left to decay before step {decay_end}",
     "", "scheduler.stable_steps=max(0, (decay_end - scheduler.warmup_steps) * 4 // 5)",
     Severity::warning},
    {"warmup-init", "scheduler.warmup_init_lr", "scheduler.warmup_steps > 0",
     "scheduler.warmup_init_lr <= optimizer.lr",
     "{scheduler.warmup_init_lr} is above optimizer.lr ({optimizer.lr})",
     "the learning rate would fall during warmup", "scheduler.warmup_init_lr=0"},
    {"gamma-wanted", "scheduler.gamma", "scheduler.type in ['exponential', 'multistep']",
     "scheduler.gamma != null", "type={scheduler.type} needs a factor",
     "multistep multiplies the rate by it at each milestone, exponential at each step", ""},
    {"milestones-wanted", "scheduler.milestones", "scheduler.type == 'multistep'",
     "len(scheduler.milestones) > 0", "type=multistep needs the steps at which the rate falls",
     "example: [6000, 9000]", ""},
    {"cycle-wanted", "scheduler.cycle_steps", "scheduler.type == 'cosine_restarts'",
     "scheduler.cycle_steps > 0", "type=cosine_restarts needs the length of its first cycle", "",
     "scheduler.cycle_steps=max(1, (train.steps - scheduler.warmup_steps) // 4)"},
    {"stages-wanted", "scheduler.stages", "scheduler.type == 'stages'", "stages.given",
     "type=stages needs stages",
     "a list of maps, each with type, steps and to, the share of optimizer.lr at its end", ""},
    {"stages-unused", "scheduler.stages", "stages.given", "scheduler.type == 'stages'",
     "stages have no effect with scheduler.type={scheduler.type}", "", "scheduler.type='stages'",
     Severity::warning},
};

#undef MT_SMALL_STATE

}  // namespace

std::span<const Rule> optimizer_rules() { return kOptimizerRules; }

}  // namespace mtrain
