// Turns: two tasks of one rank alternate on its thread: when one waits for a transfer, the other
// continues. The order depends only on how often each of them pauses, so ranks with the same tasks
// communicate in the same order. For the rank's own thread.
#pragma once
#include <functional>
#include <memory>

#include "mtrain/base/fiber.h"
#include "mtrain/tensor/run.h"

namespace mtrain {

class Turns {
 public:
  explicit Turns(Run& run) : run_(run) {}

  /// Runs both tasks to their ends; `second` starts first. Meanwhile `pause` switches to the other
  /// task, or does nothing if that one has ended. Rethrows what either task throws, after the other
  /// one was unwound from its pause.
  void run(std::function<void()>& pause, const std::function<void()>& first,
           const std::function<void()>& second);

 private:
  Run& run_;
  Fiber fiber_;
};

}  // namespace mtrain
