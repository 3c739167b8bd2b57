// The settings of the core's own sections, one struct each. For a section of plugins (model,
// tokenizer, dataset, objective, optimizer), these are the settings that all plugins of the kind
// share; the plugin's own settings are in the same section. A setting of a part that is not
// implemented is marked (`needs`) and is still checked. Values; const members are thread-safe.
#pragma once
#include <algorithm>

#include "mtrain/optim/lr_schedule.h"
#include "mtrain/recipe/batch_schedule.h"
#include "mtrain/recipe/settings/model.h"
#include "mtrain/recipe/settings/optimization.h"
#include "mtrain/recipe/settings/parallel.h"
#include "mtrain/recipe/settings/running.h"

namespace mtrain {

/// All core sections. Bindable as a whole: one nested section each.
struct Settings {
  ModelSection model;
  TokenizerSection tokenizer;
  DatasetSection dataset;
  ObjectiveSection objective;
  TrainSection train;
  OptimizerSection optimizer;
  ScheduleConfig scheduler;
  MixedPrecisionSection mixed_precision;
  CheckpointSection checkpoint;
  DistSection dist;
  DdpSection ddp;
  CommOverlapSection comm_overlap;
  OffloadSection offload;
  CudaGraphSection cuda_graph;
  PeftSection peft;
  LoggerSection logger;
  ValidationSection validation;
  ProfilingSection profiling;
  RngSection rng;
  RunSection run;

  /// Calls visit(name, one-line doc, plugin kind or "", section) for each section, in the order in
  /// which recipes are shown.
  template <class Self, class Visit>
  static void each(Self& s, Visit&& visit) {
    visit("model", "architecture and size", "model", s.model);
    visit("tokenizer", "text to token ids", "tokenizer", s.tokenizer);
    visit("dataset", "training, validation and test data", "dataset", s.dataset);
    visit("objective", "what training minimizes", "objective", s.objective);
    visit("train", "length and batch size of training", "", s.train);
    visit("optimizer", "parameter updates", "optimizer", s.optimizer);
    visit("scheduler", "learning rate over time", "", s.scheduler);
    visit("mixed_precision", "element types and loss scale", "", s.mixed_precision);
    visit("checkpoint", "saving and resuming", "", s.checkpoint);
    visit("dist", "parallel layout", "", s.dist);
    visit("ddp", "data-parallel gradient reduction", "", s.ddp);
    visit("comm_overlap", "overlap of communication with computation", "", s.comm_overlap);
    visit("offload", "activations in host memory", "", s.offload);
    visit("cuda_graph", "capture and replay of training steps", "", s.cuda_graph);
    visit("peft", "parameter-efficient fine-tuning", "", s.peft);
    visit("logger", "console and metrics", "", s.logger);
    visit("validation", "evaluation while training", "", s.validation);
    visit("profiling", "timeline of kernels and phases", "", s.profiling);
    visit("rng", "random numbers", "", s.rng);
    visit("run", "folder and threads of this run", "", s.run);
  }

  /// Samples of each step: train.batch_schedule, or train.global_batch_size at every step.
  MT_API BatchSchedule batches() const;
  /// The largest batch size of any step.
  int64_t global_batch() const { return batches().largest(); }
  /// Samples of one micro-batch, and of one step, of evaluation.
  int64_t eval_micro_batch() const {
    return validation.micro_batch_size > 0 ? validation.micro_batch_size : train.micro_batch_size;
  }
  int64_t eval_global_batch() const {
    return validation.global_batch_size > 0 ? validation.global_batch_size : global_batch();
  }
  /// A command that plans a job of another size than dist.nproc sets this number of ranks.
  int64_t planned_ranks = 0;
  int64_t ranks() const { return planned_ranks > 0 ? planned_ranks : dist.nproc; }
  int64_t data_parallel() const {
    return std::max<int64_t>(1, ranks() / (dist.tp * dist.pp * dist.cp));
  }
  /// Micro-batches of a step with this batch size, on each data-parallel rank.
  int64_t micro_batches(int64_t samples) const {
    return samples / (train.micro_batch_size * data_parallel());
  }
  /// Micro-batches of a step with the largest batch size.
  int64_t micro_batches() const { return micro_batches(global_batch()); }
};

}  // namespace mtrain
