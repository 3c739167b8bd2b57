#include "mtrain/pipeline/interpreter.h"

#include <algorithm>

namespace mtrain {

double Interpreter::sum(const Tensor& loss) {
  host_.resize(static_cast<size_t>(loss.numel()));
  run_.download(loss, host_.data());
  double total = 0;
  for (float value : host_) total += value;
  return total;
}

StepLoss Interpreter::run(const Program& program, const InputOf& input_of, int64_t num_targets, double loss_scale) {
  StepLoss result;
  result.num_targets = num_targets;
  auto weight = static_cast<float>(loss_scale / static_cast<double>(std::max<int64_t>(1, num_targets)));
  parameters_.clear_gradients();
  run_.open_losses = 0;  // of a step that failed
  for (size_t i = 0; i < program.size(); ++i) {
    try {
      execute(program[i], input_of, weight, result);
    } catch (const Error& error) {
      losses_.clear();
      if (error.error_class() != ErrorClass::bug) throw;
      throw Error(ErrorClass::bug, cat(error.message(), "\n  in action ", i, " (", to_text(program[i]), ") of: ",
                                       to_text(Program(program.begin(), program.begin() + std::min<ptrdiff_t>(
                                                                            static_cast<ptrdiff_t>(i) + 1, 64)))),
                  error.hint());
    }
  }
  return result;
}

void Interpreter::execute(const Action& action, const InputOf& input_of, float token_weight, StepLoss& result) {
  auto micro = static_cast<size_t>(action.micro);
  switch (action.what) {
    case Do::F: {
      PhaseTimer timer(run_.profile(), "forward");
      if (losses_.size() <= micro) losses_.resize(micro + 1);
      ModelInput input = input_of(action.micro);
      MemoryScope use(run_.memory(), MemoryUse::activations);
      input.loss_weight = token_weight;
      losses_[micro] = model_.forward(input, {});
      result.micro_batches.push_back(sum(losses_[micro]));
      result.loss_sum += result.micro_batches.back();
      break;
    }
    case Do::B: {
      PhaseTimer timer(run_.profile(), "backward");
      MemoryScope use(run_.memory(), MemoryUse::backward);
      Tensor loss = std::exchange(losses_[micro], {});
      host_.assign(static_cast<size_t>(loss.numel()), token_weight);
      backward(loss, run_.from_host<float>(host_, loss.shape()));
      if (hooks_.after_micro_batch) hooks_.after_micro_batch();
      break;
    }
    case Do::Reduce:
      MT_CHECK(run_.open_losses == 0, run_.open_losses,
               " losses of the head took no part in backward, but their gradients are added up already; for losses that are "
               "only looked at, call the head with a loss_weight of 0");
      if (hooks_.reduce) hooks_.reduce();
      else parameters_.settle_gradients(run_);
      break;
    default:
      throw Error(ErrorClass::bug, cat("the program of a single rank has F, B and R, not ", to_text(action)));
  }
}

namespace {

// Neither tape nor dropout for a scope, also when the model throws.
class Evaluating {
 public:
  explicit Evaluating(Run& run) : off_(run, false), run_(run), before_(std::exchange(run.training, false)) {}
  ~Evaluating() { run_.training = before_; }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  GradMode off_;
  Run& run_;
  bool before_;
};

}  // namespace

StepLoss Interpreter::evaluate(const ModelInput& input) {
  Evaluating evaluating(run_);
  MemoryScope use(run_.memory(), MemoryUse::activations);
  StepLoss result;
  result.loss_sum = sum(model_.forward(input, {}));
  return result;
}

}  // namespace mtrain
