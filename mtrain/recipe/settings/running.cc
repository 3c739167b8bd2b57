#include "mtrain/recipe/settings/running.h"

namespace mtrain {

using enum ResumeClass;

void OffloadSection::bind(Fields& f) {
  const std::string offload = "activations in host memory";
  f("layers", layers, "number of blocks whose saved activations are in host memory")
      .min(0)
      .max(kMostLayers)
      .resume(safe)
      .renamed_from({"cpu_offloading_num_layers"});
  f("modules", modules, "parts of blocks whose saved inputs are in host memory")
      .one_of({"attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1",
               "moe_act"})
      .needs(offload)
      .resume(safe)
      .renamed_from({"offload_modules"});
  f("fraction", fraction, "modules: fraction of them").min(0).max(1).needs(offload).resume(safe);
}

void CudaGraphSection::bind(Fields& f) {
  f("type", type,
    "full_iteration: record the GPU work of a step and launch it as CUDA graphs, with bitwise the "
    "same results; local (parts of blocks): refused, since full_iteration also records them")
      .one_of({"none", "local", "full_iteration"})
      .resume(safe)
      .renamed_from({"cuda_graph_impl"});
  f("modules", modules,
    "parts of blocks to record separately: refused, since full_iteration also records them")
      .one_of({"attn", "mlp", "moe", "moe_router", "moe_preprocess"})
      .resume(safe)
      .renamed_from({"cuda_graph_modules"});
  f("warmup_steps", warmup_steps,
    "steps before the first recorded one, in which libraries select algorithms and memory use "
    "settles")
      .min(0)
      .unit("steps")
      .resume(safe)
      .renamed_from({"cuda_graph_warmup_steps"});
}

void CheckpointSection::bind(Fields& f) {
  f("interval", interval, "updates between checkpoints; 0: only at the end")
      .min(0)
      .unit("steps")
      .resume(safe)
      .renamed_from({"save_interval"});
  f("keep", keep, "newest checkpoints to keep; 0: all, never 1")
      .min(0)
      .resume(safe)
      .renamed_from({"most_recent_k"});
  f("retain_interval", retain_interval,
    "checkpoints of steps divisible by this are never removed; 0: none")
      .min(0)
      .unit("steps")
      .resume(safe)
      .renamed_from({"save_retain_interval"});
  f("resume", resume,
    "auto: continue from the newest valid checkpoint of run.dir if there is one; never: start a "
    "new run in an empty folder; must: refuse to start without a checkpoint")
      .one_of({"auto", "never", "must"})
      .resume(safe);
  f("dir", dir, "folder of checkpoints; empty: <run.dir>/checkpoints")
      .resume(safe)
      .renamed_from({"save"});
  f("async", async, "write while training continues, from a copy in host memory")
      .resume(safe)
      .renamed_from({"async_save"});
  f("hf", hf, "also write the weights in Hugging Face's layout")
      .needs("Hugging Face export while training")
      .resume(safe)
      .renamed_from({"also_save_hf_checkpoint"});
  bind_local(f);
}

void CheckpointSection::bind_local(Fields& f) {
  const std::string local = "local checkpoints";
  f("local_interval", local_interval, "updates between copies on the node's own disk; 0: none")
      .min(0)
      .unit("steps")
      .needs(local)
      .resume(safe)
      .renamed_from({"non_persistent_save_interval"});
  f("local_dir", local_dir, "folder of local copies")
      .needs(local)
      .resume(safe)
      .renamed_from({"non_persistent_local_ckpt_dir"});
  f("local_replicas", local_replicas, "nodes that hold each copy")
      .min(1)
      .needs(local)
      .resume(safe)
      .renamed_from({"replication_factor"});
  f("local_replica_stride", local_replica_stride, "ranks between a copy and the next")
      .min(1)
      .needs(local)
      .resume(safe)
      .renamed_from({"replication_jump"});
}

void LoggerSection::bind(Fields& f) {
  f("interval", interval, "updates between plain console lines; 0: about a hundred lines per run")
      .min(0)
      .unit("steps")
      .resume(safe)
      .renamed_from({"log_interval"});
  f("console", console, "auto: a live line on a terminal, plain lines otherwise")
      .one_of({"auto", "plain", "off"})
      .resume(safe);
  f("metrics", metrics, "write metrics.jsonl").resume(safe);
  f("tensorboard", tensorboard, "write TensorBoard event files").resume(safe);
  f("params_norm", params_norm,
    "write the L2 norm of all parameters to metrics.jsonl and TensorBoard, as params_norm")
      .resume(safe)
      .renamed_from({"log_params_norm"});
  f("memory_interval", memory_interval,
    "updates between log lines about memory: in use, peak by purpose, taken from the system, "
    "planned; 0: none")
      .min(0)
      .unit("steps")
      .resume(safe)
      .renamed_from({"log_memory_interval"});
}

void ValidationSection::bind(Fields& f) {
  f("interval", interval, "updates between evaluations; 0: only at the end")
      .min(0)
      .unit("steps")
      .resume(safe)
      .renamed_from({"eval_interval"});
  f("steps", steps, "global batches per evaluation, always the same batches; 0: no evaluation")
      .min(0)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"eval_iters"});
  f("micro_batch_size", micro_batch_size, "samples in one forward pass; 0: as in training")
      .min(0)
      .max(kLargestDimension)
      .unit("samples")
      .resume(safe)
      .renamed_from({"eval_micro_batch_size"});
  f("global_batch_size", global_batch_size, "samples of one evaluation step; 0: as in training")
      .min(0)
      .max(kLargestDimension)
      .unit("samples")
      .resume(safe)
      .renamed_from({"eval_global_batch_size"});
}

void ProfilingSection::bind(Fields& f) {
  f("type", type,
    "trace: record the kernels and phases of some steps for a trace viewer, in the run's "
    "trace-FIRST-LAST.json")
      .one_of({"none", "trace"})
      .resume(safe);
  f("start", start, "steps before it starts")
      .min(0)
      .unit("steps")
      .resume(safe)
      .renamed_from({"profile_step_start"});
  f("end", end, "steps before it stops")
      .min(0)
      .unit("steps")
      .resume(safe)
      .renamed_from({"profile_step_end"});
  f("peak_tflops", peak_tflops,
    "peak rate of a device, the denominator of mfu; 0: from the data sheet of its type, or "
    "measured if the type is unknown")
      .min(0)
      .unit("TFLOP/s")
      .resume(safe);
  f("ranks", ranks, "the ranks that write a trace; files of ranks other than 0 end in -rankN.json")
      .min(0)
      .resume(safe)
      .renamed_from({"profile_ranks"});
}

void RngSection::bind(Fields& f) {
  f("seed", seed, "seed of start values, dropout and data order")
      .min(0)
      .max(4294967295.0)
      .resume(data);
}

void RunSection::bind(Fields& f) {
  f("dir", dir, "the run's folder; empty: runs/<recipe name>").resume(safe).example("runs/first");
  f("name", name, "shown in logs; empty: the recipe's name").resume(safe);
  f("threads", threads, "CPU threads; 0: as many as the machine allows")
      .min(0)
      .max(1024)
      .resume(safe);
  f("deterministic", deterministic,
    "use only deterministic operations; on the CPU backend this is always the case")
      .resume(safe)
      .renamed_from({"deterministic_mode"});
}

}  // namespace mtrain
