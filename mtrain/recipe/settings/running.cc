#include "mtrain/recipe/settings/running.h"

namespace mtrain {

using enum ResumeClass;

void OffloadSection::bind(Fields& f) {
  const std::string offload = "offload of parts of blocks";
  f("layers", layers, "number of blocks whose stored activations are offloaded to host memory")
      .min(0)
      .max(kMostLayers)
      .resume(safe)
      .renamed_from({"cpu_offloading_num_layers"});
  f("modules", modules, "parts of blocks whose stored inputs are offloaded to host memory")
      .one_of({"attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1",
               "moe_act"})
      .needs(offload)
      .resume(safe)
      .renamed_from({"offload_modules"});
  f("fraction", fraction, "modules: fraction of their inputs to offload")
      .min(0)
      .max(1)
      .needs(offload)
      .resume(safe);
}

void CudaGraphSection::bind(Fields& f) {
  f("type", type,
    "full_iteration: capture all GPU work of a step and replay it as CUDA graphs, with "
    "bit-identical results")
      .one_of({"none", "full_iteration"})
      .resume(safe)
      .renamed_from({"cuda_graph_impl"});
  f("warmup_steps", warmup_steps,
    "steps before capture, during which libraries choose algorithms and memory allocation settles")
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
  f("keep", keep, "number of newest checkpoints to keep; 0: all; 1 is refused")
      .min(0)
      .resume(safe)
      .renamed_from({"most_recent_k"});
  f("retain_interval", retain_interval,
    "checkpoints of steps divisible by this are never deleted; 0: none")
      .min(0)
      .unit("steps")
      .resume(safe)
      .renamed_from({"save_retain_interval"});
  f("keep_best", keep_best,
    "also save a checkpoint after each validation with a lower loss than all before it, and never "
    "delete that of the lowest")
      .resume(safe);
  f("resume", resume,
    "auto: resume from the newest valid checkpoint of run.dir if there is one; never: start from "
    "scratch, run.dir must contain no metrics, records or checkpoints; must: fail without a "
    "checkpoint")
      .one_of({"auto", "never", "must"})
      .resume(safe);
  f("dir", dir, "folder of the checkpoints; empty: <run.dir>/checkpoints")
      .resume(safe)
      .renamed_from({"save"});
  f("async", async, "write checkpoints from a copy in host memory while training continues")
      .resume(safe)
      .renamed_from({"async_save"});
  f("hf", hf,
    "each checkpoint is also exported to this folder, as a Hugging Face folder step-N; training "
    "waits for the export; empty: no exports")
      .example("models/run1")
      .resume(safe);
  f("hf_shard_size", hf_shard_size,
    "largest size of a file of checkpoint.hf, such as 500MB; a larger tensor has a file of its "
    "own. "
    "The ranks that save checkpoints share the files")
      .resume(safe);
  bind_local(f);
}

void CheckpointSection::bind_local(Fields& f) {
  const std::string local = "local checkpoints";
  f("local_interval", local_interval,
    "updates between local checkpoints on the node's own disk; 0: none")
      .min(0)
      .unit("steps")
      .needs(local)
      .resume(safe)
      .renamed_from({"non_persistent_save_interval"});
  f("local_dir", local_dir, "folder of the local checkpoints")
      .needs(local)
      .resume(safe)
      .renamed_from({"non_persistent_local_ckpt_dir"});
  f("local_replicas", local_replicas, "number of nodes that hold each local checkpoint")
      .min(1)
      .needs(local)
      .resume(safe)
      .renamed_from({"replication_factor"});
  f("local_replica_stride", local_replica_stride,
    "distance in ranks between the replicas of a local checkpoint")
      .min(1)
      .needs(local)
      .resume(safe)
      .renamed_from({"replication_jump"});
}

void LoggerSection::bind(Fields& f) {
  f("interval", interval,
    "updates between progress lines on the console; 0: about a hundred lines per run")
      .min(0)
      .unit("steps")
      .resume(safe)
      .renamed_from({"log_interval"});
  f("console", console, "auto: a live status line on a terminal, plain lines otherwise")
      .one_of({"auto", "plain", "off"})
      .resume(safe);
  f("metrics", metrics, "write metrics.jsonl").resume(safe);
  f("tensorboard", tensorboard, "write TensorBoard event files").resume(safe);
  f("params_norm", params_norm,
    "write the L2 norm of all parameters to metrics.jsonl and TensorBoard, as params_norm")
      .resume(safe)
      .renamed_from({"log_params_norm"});
  f("memory_interval", memory_interval,
    "updates between log lines about memory: current and peak use by purpose, memory reserved from "
    "the system, and the plan; 0: none")
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
  f("steps", steps, "global batches per evaluation, the same ones every time; 0: no evaluation")
      .min(0)
      .max(kLargestDimension)
      .resume(safe)
      .renamed_from({"eval_iters"});
  f("patience", patience,
    "end the run when this many validations in a row have not lowered the loss; 0: never")
      .min(0)
      .resume(safe);
  f("min_improvement", min_improvement,
    "patience: a loss counts as lower only if it is below the lowest one so far by more than this")
      .min(0)
      .unit("nats per token")
      .resume(safe);
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
  f("prompts", prompts,
    "texts that the model answers or continues at each validation, as dataset sft or preference "
    "writes them before an answer; the generated texts are logged and written to generations.jsonl")
      .resume(safe)
      .example("[\"What is 2 + 2?\", \"Write a haiku.\"]");
  f("generate_tokens", generate_tokens, "prompts: most tokens of a generated text")
      .min(1)
      .max(1 << 20)
      .unit("tokens")
      .resume(safe);
  f("temperature", temperature,
    "prompts: sampling temperature; 0: always the most likely token. The random numbers depend on "
    "rng.seed, the step and the prompt's place in the list")
      .min(0)
      .max(100)
      .resume(safe);
}

void ProfilingSection::bind(Fields& f) {
  f("type", type,
    "trace: write a timeline of the kernels and phases of some steps to trace-FIRST-LAST.json in "
    "run.dir, for a browser's trace viewer")
      .one_of({"none", "trace"})
      .resume(safe);
  f("start", start, "number of steps before the trace starts")
      .min(0)
      .unit("steps")
      .resume(safe)
      .renamed_from({"profile_step_start"});
  f("end", end, "number of steps before the trace stops")
      .min(0)
      .unit("steps")
      .resume(safe)
      .renamed_from({"profile_step_end"});
  f("peak_tflops", peak_tflops,
    "peak throughput of one device, the denominator of mfu; 0: the data-sheet value of its type, "
    "or a measured value if the type is unknown")
      .min(0)
      .unit("TFLOP/s")
      .resume(safe);
  f("ranks", ranks, "ranks that write a trace; the files of ranks other than 0 end in -rankN.json")
      .min(0)
      .resume(safe)
      .renamed_from({"profile_ranks"});
}

void RngSection::bind(Fields& f) {
  f("seed", seed, "seed of weight initialization, dropout and data order")
      .min(0)
      .max(4294967295.0)
      .resume(data);
}

void RunSection::bind(Fields& f) {
  f("dir", dir, "the run's folder; empty: runs/<recipe name>").resume(safe).example("runs/first");
  f("name", name,
    "name of the run in logs, and of its folder if run.dir is empty; empty: the recipe's name")
      .resume(safe);
  f("threads", threads,
    "number of CPU threads; 0: OMP_NUM_THREADS of the environment, or else all cores that the "
    "process may use")
      .min(0)
      .max(1024)
      .resume(safe);
  f("deterministic", deterministic,
    "use only deterministic kernels; the CPU backend is always deterministic")
      .resume(safe)
      .renamed_from({"deterministic_mode"});
  f("fast_attention_gradient", fast_attention_gradient,
    "GPUs: the gradient of attention may be summed in any order, which needs less memory for long "
    "sequences; a repeated or resumed run then differs in the last bits")
      .resume(safe);
}

}  // namespace mtrain
