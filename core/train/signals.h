// SignalWatch: turns the first SIGINT or SIGTERM into a wish to stop at the next step edge, the second into an immediate
// end. Made once, before any other thread exists, so that all threads inherit the blocked mask.
#pragma once
#include <atomic>
#include <thread>

#include "mtrain/base/export.h"

namespace mtrain {

class MT_API SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  /// The signal that asked for a stop; 0: none yet. Safe from any thread.
  int received() const { return received_.load(std::memory_order_relaxed); }

 private:
  void watch(const std::stop_token& stop);
  std::atomic<int> received_{0};
  std::jthread watcher_;
};

}  // namespace mtrain
