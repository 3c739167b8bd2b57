// Observers receive the progress of training: the console line, metrics files, TensorBoard. The
// trainer owns them and calls them in order on its thread. When an observer throws, the trainer
// logs it once and drops the observer; training continues.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/tensor/memory_use.h"

namespace mtrain {

/// Properties that do not change during a run.
struct RunInfo {
  std::string name;       // of the recipe
  std::string directory;  // the run's folder
  std::string device;     // Session::device; of several ranks "2 ranks (thread), each cpu"
  std::string dtype;
  std::string dtype_reason;  // why mixed_precision.dtype=auto chose it; empty when the recipe names
                             // the type
  int64_t parameters = 0;    // of the whole model; known on rank 0 only
  int64_t trained = 0;       // those that are not frozen; known on rank 0 only
  int64_t total_steps = 0;
  int64_t first_step = 0;         // steps already done when this process began
  int64_t global_batch_size = 0;  // samples of the first step of this invocation
  std::string batch_sizes;   // of all steps: "256", or "256, from step 2001 on 1024"; empty: always
                             // global_batch_size
  int64_t total_tokens = 0;  // of total_steps; 0: total_steps x global_batch_size x seq_length
  int64_t seq_length = 0;    // tokens
  double flops_per_token = 0;      // of forward and backward, without recomputation and without
                                   // the gradients of frozen weights
  MemoryBreakdown planned_memory;  // the planned memory in use at the peak
  std::vector<std::string> param_groups;  // ParamRates::lines()
  std::string pipeline;      // how the model is split into stages; empty without a pipeline
  size_t planned_bytes = 0;  // planned memory taken from the device, including cached blocks
};

/// " (auto: this CPU has no bf16 arithmetic)"; empty where the recipe names the type.
MT_API std::string dtype_note(const RunInfo& info);

/// One optimizer step. `step` counts finished steps: 1 after the first.
struct StepMetrics {
  int64_t step = 0;
  double loss = 0;       // mean over the step's target tokens, nats; of an objective over answers
                         // over the step's records
  double grad_norm = 0;  // before clipping
  double lr = 0;
  double loss_scale = 1;
  bool skipped =
      false;  // no update: loss or gradients are not finite, or above optimizer.skip_grad_norm
  int64_t tokens = 0;   // consumed since step 0
  int64_t samples = 0;  // consumed since step 0
  double step_seconds = 0;
  double tokens_per_second = 0;  // of all ranks together
  double tflops = 0;             // TFLOP/s of all ranks together, from flops_per_token
  double mfu = 0;                // tflops as a fraction of all devices' peak rate; 0 when unknown
  uint64_t memory_bytes = 0;     // of this rank: peak tensor memory so far
  std::vector<std::pair<std::string, double>> figures = {};  // reported by model and objective
};

/// An evaluation after `step` steps.
struct EvalMetrics {
  int64_t step = 0;
  std::string split;  // "valid" or "test"
  double loss = 0;    // mean over all target tokens, nats
  int64_t tokens = 0;
  double seconds = 0;
  int64_t samples = 0;
  /// Reported by an objective over answers, whose mean over records is then the loss; else empty.
  std::vector<std::pair<std::string, double>> figures = {};
};

/// The texts that the model generated from validation.prompts after `step` steps, in their order.
struct Generations {
  struct Text {
    std::string prompt, text;  // as the recipe has it; without the prompt
    int64_t tokens = 0;        // of the text
    bool ended = false;        // by its end, not by validation.generate_tokens
    const char* end() const { return ended ? "end" : "length"; }
  };
  int64_t step = 0;
  std::vector<Text> texts;
  double seconds = 0;
};

class MT_API Observer {
 public:
  virtual ~Observer();
  virtual void on_start(const RunInfo&) {}
  virtual void on_step(const StepMetrics&) {}
  /// A step of train.skip_steps, for which nothing is computed. `tokens`: consumed since step 0.
  virtual void on_skipped_step(int64_t /*step*/, int64_t /*tokens*/) {}
  virtual void on_eval(const EvalMetrics&) {}
  /// After on_eval() of the same step.
  virtual void on_generations(const Generations&) {}
  /// A message for the user ("checkpoint of step 50 written in 0.1 s").
  virtual void on_event(const std::string&) {}
  /// Training ended after this many steps: all are done, train.max_minutes are over, or a signal or
  /// a caller asked it to stop. Not called when an error ends it.
  virtual void on_end(int64_t /*step*/) {}
};

}  // namespace mtrain
