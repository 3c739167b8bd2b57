// The settings of the core's own sections, one struct each. A section whose part is a plugin (model, tokenizer, dataset,
// optimizer) holds here what every plugin of that kind shares; the plugin's own settings lie in the same section.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/config/fields.h"
#include "mtrain/optim/schedule.h"

namespace mtrain {

struct ModelSection {
  std::string type, init_from, recompute = "none";
  int64_t seq_length = 1024, vocab_size = 0, vocab_multiple = 64;
  void bind(Fields& f);
};

struct TokenizerSection {
  std::string type = "byte";
  void bind(Fields& f);
};

struct DatasetSection {
  std::string type;
  void bind(Fields& f);
};

struct TrainSection {
  int64_t steps = 0, micro_batch_size = 1, global_batch_size = 0;
  std::string on_nonfinite = "stop";
  void bind(Fields& f);
};

struct OptimizerSection {
  std::string type = "adamw";
  double lr = 3e-4, weight_decay = 0.1, clip_grad = 1.0;
  void bind(Fields& f);
};

struct MixedPrecisionSection {
  std::string dtype = "fp32";
  double initial_loss_scale = 65536;
  int64_t loss_scale_window = 1000;
  void bind(Fields& f);
};

struct CheckpointSection {
  int64_t interval = 0, keep = 3;
  std::string resume = "auto", dir;
  void bind(Fields& f);
};

struct DistSection {
  int64_t tp = 1, pp = 1, vp = 1, cp = 1, ep = 1, etp = 1, zero = 0;
  bool sp = false;
  std::string backend = "cpu";
  void bind(Fields& f);
};

struct DdpSection {
  bool overlap_grad_reduce = false;
  void bind(Fields& f);
};

struct CommOverlapSection {
  bool enabled = false;
  void bind(Fields& f);
};

struct PeftSection {
  std::string type = "none";
  void bind(Fields& f);
};

struct LoggerSection {
  int64_t interval = 0;
  bool tensorboard = true, metrics = true;
  std::string console = "auto";
  void bind(Fields& f);
};

struct ValidationSection {
  int64_t interval = 0, steps = 10;
  void bind(Fields& f);
};

struct RngSection {
  int64_t seed = 1234;
  void bind(Fields& f);
};

struct RunSection {
  std::string dir, name;
  int64_t threads = 0;
  void bind(Fields& f);
};

/// All core sections. Bindable as a whole: one nested section each.
struct Settings {
  ModelSection model;
  TokenizerSection tokenizer;
  DatasetSection dataset;
  TrainSection train;
  OptimizerSection optimizer;
  ScheduleConfig scheduler;
  MixedPrecisionSection mixed_precision;
  CheckpointSection checkpoint;
  DistSection dist;
  DdpSection ddp;
  CommOverlapSection comm_overlap;
  PeftSection peft;
  LoggerSection logger;
  ValidationSection validation;
  RngSection rng;
  RunSection run;

  /// Calls visit(name, one-line doc, plugin kind or "", section) for each section, in the order recipes are shown.
  template <class Self, class Visit>
  static void each(Self& s, Visit&& visit) {
    visit("model", "architecture and size", "model", s.model);
    visit("tokenizer", "text to token ids", "tokenizer", s.tokenizer);
    visit("dataset", "where samples come from", "dataset", s.dataset);
    visit("train", "length and batch of training", "", s.train);
    visit("optimizer", "how parameters move", "optimizer", s.optimizer);
    visit("scheduler", "learning rate over time", "", s.scheduler);
    visit("mixed_precision", "element types and loss scale", "", s.mixed_precision);
    visit("checkpoint", "saving and resuming", "", s.checkpoint);
    visit("dist", "parallel layout", "", s.dist);
    visit("ddp", "data-parallel gradient reduction", "", s.ddp);
    visit("comm_overlap", "communication behind computation", "", s.comm_overlap);
    visit("peft", "parameter-efficient fine-tuning", "", s.peft);
    visit("logger", "console and metrics", "", s.logger);
    visit("validation", "evaluation while training", "", s.validation);
    visit("rng", "random numbers", "", s.rng);
    visit("run", "folder and threads of this run", "", s.run);
  }

  int64_t global_batch() const {
    return train.global_batch_size > 0 ? train.global_batch_size : train.micro_batch_size;
  }
  int64_t micro_batches() const { return global_batch() / train.micro_batch_size; }
};

}  // namespace mtrain
