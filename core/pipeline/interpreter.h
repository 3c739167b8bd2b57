// The interpreter: runs one rank's program of a step. There is one step path; gradient accumulation and "no pipeline" are
// the one-stage program. Refers to the model and the parameters; for the rank's own thread.
#pragma once
#include <functional>
#include <vector>

#include "mtrain/nn/model.h"
#include "mtrain/pipeline/schedule.h"

namespace mtrain {

/// What a step left behind, before any update.
struct StepLoss {
  double loss_sum = 0;      // over the targets of all micro-batches, in double, in order
  std::vector<double> micro_batches;  // of each of them
  int64_t num_targets = 0;
  double mean() const { return num_targets > 0 ? loss_sum / static_cast<double>(num_targets) : 0; }
};

class MT_API Interpreter {
 public:
  /// Gives micro-batch `micro` on the device, and sets the run's first_token.
  using InputOf = std::function<ModelInput(int64_t micro)>;

  Interpreter(Run& run, Model& model, ParamList& parameters) : run_(run), model_(model), parameters_(parameters) {}

  /// What is to be done with gradients beyond adding them up: `after_micro_batch` when a backward has ended, `reduce` at the
  /// end of a stage's last one, in place of settle_gradients().
  struct GradientHooks {
    std::function<void()> after_micro_batch, reduce;
  };
  void set_gradient_hooks(GradientHooks hooks) { hooks_ = std::move(hooks); }

  /// Runs the program. Each token's loss is weighted 1/num_targets (of the whole global batch) times `loss_scale`, so the
  /// result does not depend on how the batch is cut into micro-batches. A failure names the action it happened in.
  StepLoss run(const Program& program, const InputOf& input_of, int64_t num_targets, double loss_scale);
  /// Forward only, without tape or dropout.
  StepLoss evaluate(const ModelInput& input);

 private:
  void execute(const Action& action, const InputOf& input_of, float token_weight, StepLoss& result);
  double sum(const Tensor& loss);
  Run& run_;
  Model& model_;
  ParamList& parameters_;
  std::vector<Tensor> losses_;  // by micro-batch, alive between forward and backward
  std::vector<float> host_;
  GradientHooks hooks_;
};

}  // namespace mtrain
