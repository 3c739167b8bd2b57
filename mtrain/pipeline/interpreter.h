// The interpreter: runs one rank's program of a step. There is one step path: gradient
// accumulation, and training without a pipeline, are the one-stage program. Does not own the
// models, the parameters and the communicator; for the rank's own thread.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "mtrain/nn/model.h"
#include "mtrain/pipeline/alternating_tasks.h"
#include "mtrain/pipeline/schedule.h"
#include "mtrain/pipeline/stage_link.h"
#include "mtrain/pipeline/step_cursor.h"

namespace mtrain {

/// The result of a step before any update. The same on all ranks of the pipeline.
struct StepLoss {
  double loss_sum = 0;  // over the targets of all micro-batches, summed in double, in order
  std::vector<double> micro_batches;  // loss sum of each micro-batch
  int64_t num_targets = 0;
  double mean() const { return num_targets > 0 ? loss_sum / static_cast<double>(num_targets) : 0; }
};

/// A rank's place in a pipeline. Does not own models and communicator.
struct PipelinePlace {
  StageMap map = StageMap::looping(1);
  int64_t rank = 0;               // index in the map
  std::vector<Model*> stages;     // the stages map.stages_of(rank), in ascending order
  Communicator* ranks = nullptr;  // see StageLink; also null if the pipeline has one rank
  StageLink::Options transfers = {};
  /// From the stages' ParallelContext: called while the all-to-all of experts' tokens is in
  /// progress; the interpreter sets it to switch to the overlapped action. Null if actions never
  /// overlap.
  std::shared_ptr<std::function<void()>> during_token_exchange = nullptr;
  InnerStepRules steps = {};  // of actions; set_gradient_hooks() sets their buckets
  /// Checks the exchanges of tokens against `steps` while a program runs; from the stages'
  /// ParallelContext. Null if there are none.
  std::shared_ptr<ExchangeWatch> exchange_watch = nullptr;
  /// Defers the gradient of the output head's matrix to the last stage's R, for at most
  /// `deferred_head_limit` micro-batches at a time (0: all). Megatron-LM:
  /// --defer-embedding-wgrad-compute.
  bool defer_head_wgrad = false;
  int64_t deferred_head_limit = 0;
  /// Evaluations gather the parameters of whole stages, at most this many at once (see
  /// ShardingActions). 0: they do not gather whole stages.
  int64_t resident_stages = 0;
};

class MT_API Interpreter {
 public:
  /// Returns micro-batch `micro` on the device, and sets first_token and own_tokens of the context.
  using InputOf = std::function<ModelInput(int64_t micro)>;

  /// The whole model on one rank.
  Interpreter(ExecutionContext& ctx, Model& model, ParamList& parameters);
  Interpreter(ExecutionContext& ctx, PipelinePlace place, ParamList& parameters);

  /// Called when gradients are complete. `after_micro_batch`: after the last backward (W, or B if
  /// the program has no W) of each stage and micro-batch. `reduce_scatter`: at each Scatter.
  /// `finish`: at the end of the program's last R, instead of zero_unwritten_gradients(): waits
  /// for the reductions. `start`: where the lists of inner steps start the reduction of a bucket
  /// (InnerStepKind::reduce), with its index in `buckets`.
  struct GradientHooks {
    std::function<void()> after_micro_batch, reduce_scatter, finish;
    std::function<void(size_t bucket)> start = {};
    std::vector<GradientBucket> buckets = {};
  };
  void set_gradient_hooks(GradientHooks hooks);
  /// Called at Gather and Release. `gather` starts the all-gather of a stage's parameters, which
  /// stay in memory until `release`. Those in `parts` do the same for a part of the model, within F
  /// and B. Without hooks these actions do nothing.
  struct ParamHooks {
    std::function<void(int64_t stage)> gather, release;
    struct Parts {
      std::function<void(PartId)> gather, release;
    } parts = {};
  };
  void set_param_hooks(ParamHooks hooks);
  /// The model reads parameters of this part next: runs the inner steps up to the one that reads
  /// them.
  void before_read(PartId part) {
    if (cursor_) cursor_->read(part);
  }
  /// The model adds to the gradient of a parameter of this part next.
  void before_write(PartId part, const std::string& parameter) {
    if (cursor_) cursor_->write(part, parameter);
  }
  /// The model reads a parameter that is not gathered. Throws Error(config) within an action that
  /// has inner steps.
  void refuse_read(PartId part, const std::string& parameter) const {
    if (cursor_) cursor_->refuse_read(part, parameter);
  }
  /// The inputs of expand_steps() for this rank.
  const InnerStepRules& step_rules() const { return step_rules_; }

  /// An objective over whole micro-batches in place of the tokens' losses. Called after each
  /// forward of the last stage with the losses of the micro-batch's tokens, of this rank where cp
  /// shards them; returns the micro-batch's loss. While training, it replaces each token's loss by
  /// the gradient with which backward starts there; loss_weight then only weights the losses of
  /// routers.
  using MicroBatchObjective =
      std::function<double(int64_t micro, std::span<float> losses, bool training)>;
  /// Null: the loss is the sum of the tokens' losses.
  void set_objective(MicroBatchObjective objective) { objective_ = std::move(objective); }

  /// Runs the rank's lowered program. Each token's loss is weighted by 1/num_targets (of the whole
  /// global batch) times `loss_scale`, so the result does not depend on how the batch is divided
  /// into micro-batches. Collective over the pipeline. An Error(bug) names the action that failed,
  /// with an arrow into the program.
  StepLoss run(const Program& program, const InputOf& input_of, int64_t num_targets,
               double loss_scale);
  /// Forward only, without tape or dropout. Collective over the pipeline; with
  /// PipelinePlace::resident_stages also over the ranks that share the parameters.
  StepLoss evaluate(int64_t micro_batches, const InputOf& input_of);
  /// The same for one micro-batch.
  StepLoss evaluate(const ModelInput& input);
  /// The logits of an input without targets, without tape or dropout: what the last stage returns;
  /// undefined on ranks that do not have it. Collective as evaluate().
  Tensor logits(const ModelInput& input);
  /// Micro-batches have a different size from now on: each stage sends the shape of its output
  /// again. Every rank of the pipeline must call it.
  void forget_shapes() { link_.forget_shapes(); }
  /// The shape and dtype of a stage's output, of one stream if it passes on several; empty before
  /// its first forward. A dry run of the next stage passes them to expect().
  const Shape& residual_shape() const { return residual_shape_; }
  DType residual_dtype() const { return residual_dtype_; }
  void expect(const Shape& shape, DType dtype) { link_.expect(shape, dtype); }

 private:
  class Boundary;
  class StepsOfProgram;
  /// One micro-batch of one stage between its forward and its last backward.
  struct InFlight {
    std::shared_ptr<Boundary> input;   // null on the first stage
    std::shared_ptr<NodeBase> output;  // tape node of the output
    Tensor loss;                       // only on the last stage
    std::vector<float> seeds;  // the gradient of each token's loss; empty: all are token_weight
    DeferredGradients weights;
  };
  struct Step;

  void execute(const Program& program, Step& step);
  void run_forward(int64_t micro_batches, Step& step);
  size_t perform(const Program& program, size_t at, Step& step);
  void perform(const Action& action, Step& step);
  void run_with_steps(const Program& program, size_t at, Step& step);
  void run_overlapped(const Program& program, size_t at, Step& step);
  DeferredGradients* defer_head();
  void forward(const Action& action, Step& step);
  void backward(const Action& action, Step& step);
  Tensor output_gradient(const Action& action, const Step& step, InFlight& flight);
  void micro_batch_done();
  void reduce();
  void share_losses(Step& step);
  void abandon(const Error& error) noexcept;
  bool is_last(const Action& action) const { return action.stage + 1 == link_.map().stages(); }
  Model& model_of(const Action& action) const;
  /// Throws Error(bug) if the placement of a stage's result is known and differs from what the next
  /// stage, or backward, expects.
  void check_placement(const Tensor& out, bool loss) const;
  double sum(const Tensor& loss);
  void take_losses(const Tensor& loss, int64_t micro, Step& step, InFlight& flight);

  ExecutionContext& ctx_;
  ParamList& parameters_;
  int64_t rank_;
  std::vector<Model*> models_;  // by stage; null if another rank has it
  StageLink link_;
  std::map<std::pair<int16_t, int32_t>, InFlight> flights_;  // by stage and micro-batch
  Shape residual_shape_;
  DType residual_dtype_ = DType::f32;
  std::vector<float> host_;
  GradientHooks hooks_;
  ParamHooks param_hooks_;
  MicroBatchObjective objective_;
  InnerStepRules step_rules_;
  InnerStepCursor::Hooks step_hooks_;
  InnerStepLists step_lists_;          // of `listed_`; empty if its actions only compute
  Program listed_;                     // the program that runs, or the last one
  InnerStepCursor* cursor_ = nullptr;  // of the action that runs, if it has inner steps
  std::string where_;                  // of the last error: the inner steps around it
  std::shared_ptr<ExchangeWatch> exchange_watch_;
  std::shared_ptr<std::function<void()>> during_token_exchange_;
  bool defer_head_wgrad_;
  size_t deferred_head_limit_;
  int64_t resident_stages_;
  std::deque<DeferredGradients> heads_;  // one per micro-batch, oldest first
  std::unique_ptr<AlternatingTasks> overlap_;
};

}  // namespace mtrain
