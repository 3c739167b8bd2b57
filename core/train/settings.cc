#include "mtrain/train/settings.h"

namespace mtrain {

using enum ResumeClass;

void ModelSection::bind(Fields& f) {
  f("type", type, "the model plugin").required().plugin("model").example("llama").resume(impossible);
  f("seq_length", seq_length, "tokens per sample")
      .min(1)
      .unit("tokens")
      .renamed_from({"encoder_seq_length"});
  f("vocab_size", vocab_size, "rows of the embedding; 0: the tokenizer's vocabulary rounded up to vocab_multiple")
      .min(0)
      .resume(impossible);
  f("vocab_multiple", vocab_multiple, "the vocabulary is padded to a multiple of this; padding never changes the loss")
      .min(1)
      .resume(impossible)
      .renamed_from({"make_vocab_size_divisible_by"});
  f("init_from", init_from, "Hugging Face folder (config.json, *.safetensors) that gives the start values")
      .example("/models/Llama-3.2-1B");
  f("recompute", recompute, "full: replay each block in backward instead of keeping its activations")
      .one_of({"none", "full"})
      .resume(safe)
      .renamed_from({"recompute_granularity"});
}

void TokenizerSection::bind(Fields& f) {
  f("type", type, "the tokenizer plugin").plugin("tokenizer").resume(impossible).renamed_from({"tokenizer_type"});
}

void DatasetSection::bind(Fields& f) { f("type", type, "the dataset plugin").required().plugin("dataset").example("gpt"); }

void TrainSection::bind(Fields& f) {
  f("steps", steps, "optimizer updates of the whole run")
      .required()
      .min(0)
      .unit("steps")
      .example("1000")
      .renamed_from({"train_iters", "max_steps"});
  f("micro_batch_size", micro_batch_size, "samples in one forward and backward pass").min(1).unit("samples").resume(safe);
  f("global_batch_size", global_batch_size,
    "samples per update: micro_batch_size x accumulation x data-parallel ranks; 0: micro_batch_size")
      .min(0)
      .unit("samples");
  f("on_nonfinite", on_nonfinite, "what to do when the loss or its gradient is not finite: stop, or skip that update")
      .one_of({"stop", "skip"})
      .resume(safe);
}

void OptimizerSection::bind(Fields& f) {
  f("type", type, "the optimizer plugin").plugin("optimizer").resume(impossible);
  f("lr", lr, "peak learning rate").min(0).example("3e-4").renamed_from({"learning_rate"});
  f("weight_decay", weight_decay, "decay of weight matrices; biases and norms have none").min(0);
  f("clip_grad", clip_grad, "largest L2 norm of the whole gradient; 0: no clipping").min(0).renamed_from({"max_grad_norm"});
}

void MixedPrecisionSection::bind(Fields& f) {
  f("dtype", dtype, "type of weights and activations in computation; master weights and gradients are always fp32")
      .one_of({"fp32", "bf16", "fp16"});
  f("initial_loss_scale", initial_loss_scale, "fp16: first loss scale").min(1);
  f("loss_scale_window", loss_scale_window, "fp16: good steps before the scale doubles").min(1).unit("steps");
}

void CheckpointSection::bind(Fields& f) {
  f("interval", interval, "updates between checkpoints; 0: only at the end").min(0).unit("steps").resume(safe).renamed_from({"save_interval"});
  f("keep", keep, "newest checkpoints to keep; 0: all, never 1").min(0).resume(safe);
  f("resume", resume, "auto: continue from the newest valid checkpoint of run.dir if there is one; never: start anew in an empty folder; must: refuse to start without one")
      .one_of({"auto", "never", "must"})
      .resume(safe);
  f("dir", dir, "where checkpoints go; empty: <run.dir>/checkpoints").resume(safe).renamed_from({"save"});
}

void DistSection::bind(Fields& f) {
  f("tp", tp, "tensor-parallel ranks").min(1).resume(safe).renamed_from({"tensor_model_parallel_size"});
  f("pp", pp, "pipeline stages").min(1).resume(safe).renamed_from({"pipeline_model_parallel_size"});
  f("vp", vp, "virtual stages per pipeline rank").min(1).resume(safe).renamed_from({"virtual_pipeline_model_parallel_size"});
  f("cp", cp, "context-parallel ranks").min(1).resume(safe).renamed_from({"context_parallel_size"});
  f("ep", ep, "expert-parallel ranks").min(1).resume(safe).renamed_from({"expert_model_parallel_size"});
  f("etp", etp, "tensor-parallel ranks of experts").min(1).resume(safe).renamed_from({"expert_tensor_parallel_size"});
  f("sp", sp, "sequence parallel: the residual stream is split over tp").resume(safe).renamed_from({"sequence_parallel"});
  f("zero", zero, "what data-parallel ranks share: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too")
      .min(0)
      .max(3)
      .resume(safe);
  f("backend", backend, "device kind").one_of({"cpu"}).resume(safe);
}

void DdpSection::bind(Fields& f) {
  f("overlap_grad_reduce", overlap_grad_reduce, "reduce gradients while backward still runs").resume(safe);
}

void CommOverlapSection::bind(Fields& f) {
  f("enabled", enabled, "hide tensor-parallel communication behind computation").resume(safe);
}

void PeftSection::bind(Fields& f) { f("type", type, "fine-tuning method").one_of({"none"}).resume(impossible); }

void LoggerSection::bind(Fields& f) {
  f("interval", interval, "updates between plain console lines; 0: about a hundred lines per run")
      .min(0)
      .unit("steps")
      .resume(safe)
      .renamed_from({"log_interval"});
  f("console", console, "auto: a live line on a terminal, plain lines otherwise").one_of({"auto", "plain", "off"}).resume(safe);
  f("metrics", metrics, "write metrics.jsonl").resume(safe);
  f("tensorboard", tensorboard, "write TensorBoard event files").resume(safe);
}

void ValidationSection::bind(Fields& f) {
  f("interval", interval, "updates between evaluations; 0: only at the end").min(0).unit("steps").resume(safe).renamed_from({"eval_interval"});
  f("steps", steps, "global batches per evaluation, always the same ones; 0: none")
      .min(0)
      .resume(safe)
      .renamed_from({"eval_iters"});
}

void RngSection::bind(Fields& f) { f("seed", seed, "of start values, dropout and data order").min(0).max(4294967295.0); }

void RunSection::bind(Fields& f) {
  f("dir", dir, "the run's folder; empty: runs/<recipe name>").resume(safe).example("runs/first");
  f("name", name, "shown in logs; empty: the recipe's name").resume(safe);
  f("threads", threads, "CPU threads; 0: what the machine allows").min(0).resume(safe);
}

}  // namespace mtrain
