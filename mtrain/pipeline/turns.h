// Turns: two pieces of work of one rank that take turns on its thread: whichever waits for a
// transfer lets the other go on. The order is a function of how often each of them pauses, so ranks
// that do the same work communicate in the same order. For the rank's own thread.
#pragma once
#include <functional>
#include <memory>

#include "mtrain/base/fiber.h"
#include "mtrain/tensor/run.h"

namespace mtrain {

class Turns {
 public:
  explicit Turns(Run& run) : run_(run) {}

  /// Runs both to their ends; `second` begins. While they run `pause` lets the other one go on, or
  /// does nothing when that one has ended. What either throws is thrown here, after the other one
  /// was unwound from where it paused.
  void run(std::function<void()>& pause, const std::function<void()>& first,
           const std::function<void()>& second);

 private:
  Run& run_;
  Fiber fiber_;
};

}  // namespace mtrain
