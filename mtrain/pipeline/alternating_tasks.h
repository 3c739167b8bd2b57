// AlternatingTasks: two tasks of one rank share its thread. When one waits for a transfer, the
// other continues. The order depends only on the number of pauses of each task, so ranks with the
// same tasks communicate in the same order. For the rank's own thread.
#pragma once
#include <functional>
#include <memory>

#include "mtrain/base/fiber.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {

class AlternatingTasks {
 public:
  explicit AlternatingTasks(ExecutionContext& ctx) : ctx_(ctx) {}

  /// Runs both tasks to completion; `second` runs first, up to its first pause. While they run, a
  /// call of `pause` switches to the other task, or does nothing if the other task has ended. If a
  /// task throws, the other one is unwound from its pause and the exception is rethrown.
  void run(std::function<void()>& pause, const std::function<void()>& first,
           const std::function<void()>& second);

 private:
  ExecutionContext& ctx_;
  Fiber fiber_;
};

}  // namespace mtrain
