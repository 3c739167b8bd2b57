#include "mtrain/pipeline/interpreter.h"

#include <algorithm>

#include "mtrain/base/plugin_call.h"
#include "mtrain/pipeline/evaluating.h"
#include "mtrain/pipeline/forward_only.h"
#include "mtrain/pipeline/schedule_check.h"
#include "mtrain/pipeline/sharding_actions.h"

namespace mtrain {

/// The start of a stage's tape: receives the gradient of the stage's input.
class Interpreter::Boundary final : public GradTarget {
 public:
  explicit Boundary(const Tensor& x) : shape_(x.shape()), dtype_(x.dtype()) {}
  /// The gradient in the shape and dtype of the stage's input, as the previous stage expects it.
  Tensor take(ExecutionContext& ctx) {
    Tensor dx = std::exchange(grad, {}).view(shape_);
    if (dx.dtype() == dtype_) return dx;
    Tensor converted = ctx.empty(shape_, dtype_);
    ctx.copy(converted, dx);
    return converted;
  }

 private:
  Shape shape_;
  DType dtype_;
};

/// Constants and state of one run of a program.
struct Interpreter::Step {
  const InputOf& input_of;
  float token_weight = 0;
  bool training = true;
  bool split = false;        // the program has W
  Tensor* logits = nullptr;  // receives the output of the last stage, which are no losses
  int64_t open_reduces = 0;
  StepLoss result = {};
  std::vector<std::pair<size_t, Tensor>> losses =
      {};  // by micro-batch, on the device and not downloaded yet
};

/// The steps inside the actions of a program, while it runs. They are made again only if the
/// program differs from the one before.
class Interpreter::StepsOfProgram {
 public:
  StepsOfProgram(Interpreter& owner, const Program& program) : owner_(owner) {
    owner.where_.clear();
    if (!owner.step_rules_.has_collectives()) return;
    if (owner.step_lists_.empty() || owner.listed_ != program) {
      owner.step_lists_.clear();
      owner.step_lists_ = expand_steps(program, owner.step_rules_);
      owner.listed_ = program;
    }
    if (!owner.exchange_watch_) return;
    *owner.exchange_watch_ = [&owner](TokenExchange what, bool backward) {
      MT_CHECK(owner.cursor_, "experts exchange tokens outside of F and B");
      owner.cursor_->exchange(
          what == TokenExchange::dispatch ? InnerStepKind::dispatch : InnerStepKind::combine,
          backward);
    };
  }
  ~StepsOfProgram() {
    if (owner_.exchange_watch_) *owner_.exchange_watch_ = nullptr;
  }
  StepsOfProgram(const StepsOfProgram&) = delete;
  StepsOfProgram& operator=(const StepsOfProgram&) = delete;

 private:
  Interpreter& owner_;
};

namespace {

std::vector<Model*> by_stage(const PipelinePlace& place) {
  std::vector<Model*> models(static_cast<size_t>(place.map.stages()));
  std::vector<int64_t> own = place.map.stages_of(place.rank);
  MT_CHECK(own.size() == place.stages.size(), place.stages.size(), " models for ", own.size(),
           " stages");
  for (size_t i = 0; i < own.size(); ++i) models[static_cast<size_t>(own[i])] = place.stages[i];
  return models;
}

/// The program around an action, with an arrow below the action.
std::string with_arrow(const Program& program, size_t at, int64_t rank) {
  constexpr size_t kAround = 8;
  size_t begin = at > kAround ? at - kAround : 0, end = std::min(program.size(), at + kAround + 1);
  std::string line = begin > 0 ? "  … " : "  ", arrow(begin > 0 ? 4 : 2, ' ');
  for (size_t i = begin; i < end; ++i) {
    std::string text = to_text(program[i]);
    if (i < at) arrow += std::string(text.size() + 1, ' ');
    line += text + (i + 1 < end ? " " : "");
  }
  return cat("\n  in action ", at, " (", to_text(program[at]), ") of ", program.size(),
             " of pipeline rank ", rank, ":\n", line, end < program.size() ? " …" : "", "\n", arrow,
             "^");
}

}  // namespace

Interpreter::Interpreter(ExecutionContext& ctx, Model& model, ParamList& parameters)
    : Interpreter(ctx, PipelinePlace{.stages = {&model}}, parameters) {}

Interpreter::Interpreter(ExecutionContext& ctx, PipelinePlace place, ParamList& parameters)
    : ctx_(ctx),
      parameters_(parameters),
      rank_(place.rank),
      models_(by_stage(place)),
      link_(ctx, place.map, place.ranks, place.transfers),
      step_rules_(std::move(place.steps)),
      exchange_watch_(place.exchange_watch),
      during_token_exchange_(place.during_token_exchange),
      defer_head_wgrad_(place.defer_head_wgrad),
      deferred_head_limit_(static_cast<size_t>(place.deferred_head_limit)),
      resident_stages_(place.resident_stages) {
  step_rules_.defer_head_wgrad = defer_head_wgrad_;
}

void Interpreter::set_gradient_hooks(GradientHooks hooks) {
  step_rules_.buckets = std::exchange(hooks.buckets, {});
  step_lists_.clear();
  step_hooks_.reduce = std::exchange(hooks.start, {});
  hooks_ = std::move(hooks);
}

void Interpreter::set_param_hooks(ParamHooks hooks) {
  step_hooks_.gather = std::exchange(hooks.parts.gather, {});
  step_hooks_.release = std::exchange(hooks.parts.release, {});
  param_hooks_ = std::move(hooks);
}

Model& Interpreter::model_of(const Action& action) const {
  bool known = action.stage >= 0 && static_cast<size_t>(action.stage) < models_.size();
  MT_CHECK(known && models_[static_cast<size_t>(action.stage)] != nullptr, to_text(action),
           ": its stage is not on rank ", rank_);
  return *models_[static_cast<size_t>(action.stage)];
}

void Interpreter::check_placement(const Tensor& out, bool loss) const {
  if (!ctx_.tracked_axis || !out.placement()) return;
  Placement wanted =
      loss ? Placement::I()
           : ctx_.tracked_axis->residual;  // losses are invariant: every rank starts
                                           // backward with the same gradient of each loss
  MT_CHECK(*out.placement() == wanted, "the model's ", loss ? "losses are" : "stream is",
           " placed ", *out.placement(), " over the tensor-parallel ranks, not ", wanted);
}

double Interpreter::sum(const Tensor& loss) {
  host_.resize(static_cast<size_t>(loss.numel()));
  ctx_.download(loss, host_.data());
  double total = 0;
  for (float value : host_) total += value;
  return total;
}

StepLoss Interpreter::run(const Program& program, const InputOf& input_of, int64_t num_targets,
                          double loss_scale) {
  Step step{.input_of = input_of,
            .token_weight = static_cast<float>(
                loss_scale / static_cast<double>(std::max<int64_t>(1, num_targets)))};
  step.result.num_targets = num_targets;
  for (const Action& a : program)
    step.split |= a.what == ActionKind::weight_grad,
        step.open_reduces += a.what == ActionKind::reduce;
  parameters_.clear_gradients();
  ctx_.open_losses = 0;  // may be left over from a failed step
  execute(program, step);
  return std::move(step.result);
}

void Interpreter::execute(const Program& program, Step& step) {
  for (const Action& a : program)
    if (a.what == ActionKind::forward)
      step.result.micro_batches.resize(
          std::max(step.result.micro_batches.size(), size_t(a.micro) + 1));
  size_t at = 0;
  link_.set_training(step.training);
  const StepsOfProgram steps(*this, program);
  try {
    while (at < program.size()) at += perform(program, at, step);
    link_.finish();
    share_losses(step);
  } catch (const Error& error) {
    abandon(error);
    bool ours = error.error_class() == ErrorClass::bug || error.error_class() == ErrorClass::peer;
    if (!ours || at >= program.size()) throw;
    throw Error(error.error_class(),
                cat(error.message(), std::exchange(where_, {}), with_arrow(program, at, rank_)),
                error.hint());
  } catch (...) {
    flights_.clear();
    heads_.clear();
    link_.abandon();
    throw;
  }
}

/// Sends the reason to the other ranks before they fail because this rank's messages are missing.
void Interpreter::abandon(const Error& error) noexcept {
  if (link_.ranks() && error.error_class() != ErrorClass::peer)
    link_.ranks()->abort(error.message(), error.error_class());
  flights_.clear();
  heads_.clear();
  link_.abandon();
}

/// Runs the action, or two overlapped ones; returns the number of actions.
size_t Interpreter::perform(const Program& program, size_t at, Step& step) {
  const Action& action = program[at];
  if (is_compute(action.what)) link_.await_receives();
  if (!action.overlapped) return run_with_steps(program, at, step), 1;
  MT_CHECK(at + 1 < program.size() && program[at + 1].what == ActionKind::backward, to_text(action),
           " is overlapped, but no backward follows it");
  run_overlapped(program, at, step);
  return 2;
}

void Interpreter::run_with_steps(const Program& program, size_t at, Step& step) {
  const Action& action = program[at];
  if (step_lists_.empty() || !has_steps(action.what)) return perform(action, step);
  InnerStepCursor cursor(action, step_lists_[at], step_rules_, step_hooks_);
  cursor_ = &cursor;
  try {
    perform(action, step);
    cursor.finish();
  } catch (const Error&) {
    where_ = cursor.text();
    cursor_ = nullptr;
    throw;
  } catch (...) {
    cursor_ = nullptr;
    throw;
  }
  cursor_ = nullptr;
}

/// When one of the two waits for the all-to-all of tokens, the other continues. Forward starts;
/// backward starts when the first all-to-all of forward is in progress.
void Interpreter::run_overlapped(const Program& program, size_t at, Step& step) {
  if (!during_token_exchange_) {
    run_with_steps(program, at, step);
    return run_with_steps(program, at + 1, step);
  }
  if (!overlap_) overlap_ = std::make_unique<AlternatingTasks>(ctx_);
  std::function<void()> alternate;
  *during_token_exchange_ = [&] {
    InnerStepCursor* mine = cursor_;
    alternate();
    cursor_ = mine;
  };
  struct Reset {
    std::function<void()>& call;
    ~Reset() { call = nullptr; }
  } reset{*during_token_exchange_};
  overlap_->run(
      alternate, [&] { run_with_steps(program, at + 1, step); },
      [&] { run_with_steps(program, at, step); });
}

void Interpreter::perform(const Action& action, Step& step) {
  switch (action.what) {
    case ActionKind::forward:
      return forward(action, step);
    case ActionKind::backward:
      return backward(action, step);
    case ActionKind::weight_grad: {
      PhaseTimer timer(ctx_.profile(), "weight gradients");
      auto flight = flights_.extract({action.stage, action.micro});
      MT_CHECK(!flight.empty() && !flight.mapped().output, to_text(action), " before its backward");
      flight.mapped().weights.run();
      return micro_batch_done();
    }
    case ActionKind::recv_forward:
    case ActionKind::send_forward:
    case ActionKind::recv_backward:
    case ActionKind::send_backward:
      model_of(action);
      return link_.transfer(action);
    case ActionKind::reduce:
      model_of(action);
      if (is_last(action)) {
        PhaseTimer timer(ctx_.profile(), "weight gradients");
        for (; !heads_.empty(); heads_.pop_front()) heads_.front().run();
      }
      if (--step.open_reduces == 0) reduce();
      return;
    case ActionKind::reduce_scatter:
      model_of(action);
      MT_CHECK(!flights_.contains({action.stage, action.micro}), to_text(action),
               " before its last backward");
      if (cursor_) cursor_->finish();
      if (hooks_.reduce_scatter) hooks_.reduce_scatter();
      return;
    case ActionKind::gather_params:
      model_of(action);
      if (param_hooks_.gather) param_hooks_.gather(action.stage);
      return;
    case ActionKind::release_params:
      model_of(action);
      if (param_hooks_.release) param_hooks_.release(action.stage);
      return;
  }
}

void Interpreter::forward(const Action& action, Step& step) {
  Model& model = model_of(action);
  Tensor x = action.stage == 0 ? Tensor()
                               : link_.take({ActionKind::recv_forward, action.stage, action.micro});
  PhaseTimer timer(ctx_.profile(), "forward");
  ModelInput input = step.input_of(action.micro);
  MemoryScope use(ctx_.memory(), MemoryUse::activations);
  InFlight flight;
  if (step.training) {
    input.loss_weight = step.token_weight;
    input.weighted_later = objective_ != nullptr;
    // The head must not add to its gradient while an overlapped backward of another micro-batch
    // uses it, so its gradient is deferred.
    if (is_last(action))
      input.head_gradients = defer_head_wgrad_        ? defer_head()
                             : during_token_exchange_ ? &flight.weights
                                                      : nullptr;
    if (x.defined()) x.set_node(flight.input = std::make_shared<Boundary>(x));
  }
  if (ctx_.tracked_axis && x.defined()) x.set_placement(ctx_.tracked_axis->residual);
  Tensor out = call_plugin(model, "forward()", [&] { return model.forward(input, std::move(x)); });
  if (is_last(action) && step.logits) {
    *step.logits = out;
    return;
  }
  check_placement(out, is_last(action));
  flight.output = out.node();
  if (is_last(action)) {
    take_losses(out, action.micro, step, flight);
  } else {
    residual_shape_ =
        link_.stream_of({ActionKind::send_forward, action.stage, action.micro}, out.shape());
    residual_dtype_ = out.dtype();
    link_.put({ActionKind::send_forward, action.stage, action.micro}, out);
  }
  if (step.training) flights_[{action.stage, action.micro}] = std::move(flight);
}

void Interpreter::take_losses(const Tensor& loss, int64_t micro, Step& step, InFlight& flight) {
  const auto index = static_cast<size_t>(micro);
  if (step.training) flight.loss = loss.detach();
  if (objective_) {
    std::vector<float> losses(static_cast<size_t>(loss.numel()));
    ctx_.download(loss, losses.data());
    step.result.micro_batches[index] = objective_(micro, losses, step.training);
    if (step.training) flight.seeds = std::move(losses);
    return;
  }
  // Losses on a device are downloaded after the whole step is queued, so that the host does not
  // wait for each one.
  if (step.training && !ctx_.backend().host_memory())
    step.losses.emplace_back(index, loss.detach());
  else
    step.result.micro_batches[index] = sum(loss);
}

/// Deferred gradients run in the order of micro-batches, so that the sum is the same bit for bit.
DeferredGradients* Interpreter::defer_head() {
  while (deferred_head_limit_ > 0 && heads_.size() >= deferred_head_limit_) {
    heads_.front().run();
    heads_.pop_front();
  }
  return &heads_.emplace_back();
}

void Interpreter::backward(const Action& action, Step& step) {
  model_of(action);
  auto found = flights_.find({action.stage, action.micro});
  MT_CHECK(found != flights_.end(), to_text(action), " before its forward");
  InFlight& flight = found->second;
  Tensor dy = output_gradient(action, step, flight);
  PhaseTimer timer(ctx_.profile(), "backward");
  MemoryScope use(ctx_.memory(), MemoryUse::backward);
  if (!step.split) flight.weights.run();  // the deferred gradients of the head
  std::shared_ptr<NodeBase> output = std::exchange(flight.output, {});
  std::shared_ptr<Boundary> input = std::exchange(flight.input, {});
  const bool ends_here = dynamic_cast<const TapeNode*>(output.get()) == nullptr;
  if (input && output == input) {  // a stage without blocks
    input->grad = dy;
  } else if (!ends_here) {  // else a stage of an embedding that is frozen
    mtrain::backward(std::move(output), dy, step.split ? &flight.weights : nullptr);
    dy = {};
  }
  if (input) {
    MT_CHECK(input->grad.defined(), "stage ", action.stage,
             " does not use the output of the previous stage");
    link_.put({ActionKind::send_backward, action.stage, action.micro}, input->take(ctx_));
  }
  if (step.split) return;
  flights_.erase(found);
  micro_batch_done();
}

void Interpreter::micro_batch_done() {
  if (hooks_.after_micro_batch) hooks_.after_micro_batch();
}

Tensor Interpreter::output_gradient(const Action& action, const Step& step, InFlight& flight) {
  if (!is_last(action)) return link_.take({ActionKind::recv_backward, action.stage, action.micro});
  MemoryScope use(ctx_.memory(), MemoryUse::backward);
  Tensor loss = std::exchange(flight.loss, {});
  if (objective_) return ctx_.from_host<float>(std::exchange(flight.seeds, {}), loss.shape());
  host_.assign(static_cast<size_t>(loss.numel()), step.token_weight);
  return ctx_.from_host<float>(host_, loss.shape());
}

void Interpreter::reduce() {
  MT_CHECK(ctx_.open_losses == 0, ctx_.open_losses,
           " losses of the output head were not used in backward, but the head has already added "
           "their gradients; for losses that are only reported, call the head with loss_weight 0");
  if (cursor_) cursor_->finish();  // starts the reductions that are left
  if (hooks_.finish)
    hooks_.finish();
  else
    parameters_.zero_unwritten_gradients(ctx_);
}

/// The rank of the last stage broadcasts the losses to the other ranks of the pipeline.
void Interpreter::share_losses(Step& step) {
  std::vector<double>& losses = step.result.micro_batches;
  for (auto& [micro, loss] : std::exchange(step.losses, {})) losses[micro] = sum(loss);
  const StageMap& map = link_.map();
  if (link_.ranks() && ctx_.backend().computes())
    link_.ranks()->broadcast(losses, static_cast<int>(map.rank(map.stages() - 1)));
  for (double loss : losses) step.result.loss_sum += loss;
}

void Interpreter::run_forward(int64_t micro_batches, Step& step) {
  Evaluating evaluating(ctx_);
  Schedule schedule = with_sharding_actions(forward_only(link_.map(), micro_batches),
                                            {.resident_stages = resident_stages_});
  execute(schedule[static_cast<size_t>(rank_)], step);
}

StepLoss Interpreter::evaluate(int64_t micro_batches, const InputOf& input_of) {
  Step step{.input_of = input_of, .training = false};
  run_forward(micro_batches, step);
  return std::move(step.result);
}

Tensor Interpreter::logits(const ModelInput& input) {
  Tensor out;
  const InputOf input_of = [&](int64_t) { return input; };
  Step step{.input_of = input_of, .training = false, .logits = &out};
  run_forward(1, step);
  return out;
}

StepLoss Interpreter::evaluate(const ModelInput& input) {
  return evaluate(1, [&](int64_t) { return input; });
}

}  // namespace mtrain
