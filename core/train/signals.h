// SignalWatch: turns the first SIGINT, SIGTERM or SIGUSR1 into a wish to stop at the next step edge, the second into an
// immediate end. (SIGUSR1 is what mpirun hands on to ranks as it is, and what a batch system sends before its time limit.) Made once, before any other thread exists, so that all threads inherit the blocked mask.
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
  void tell(int signal);
  std::atomic<int> received_{0};
  std::jthread watcher_;
};

}  // namespace mtrain
