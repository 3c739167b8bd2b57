// Evaluating: a scope without tape and dropout, for evaluation and generation. For the rank's own
// thread.
#pragma once
#include <utility>

#include "mtrain/autograd/tape.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {

/// Turns tape and dropout off until it is destroyed, also if the model throws.
class Evaluating {
 public:
  explicit Evaluating(ExecutionContext& ctx)
      : off_(ctx, false), ctx_(ctx), before_(std::exchange(ctx.training, false)) {}
  ~Evaluating() { ctx_.training = before_; }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  GradMode off_;
  ExecutionContext& ctx_;
  bool before_;
};

}  // namespace mtrain
