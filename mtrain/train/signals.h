// SignalWatch: converts the first stop signal into a request to stop at the next step edge. mpirun
// forwards SIGUSR1 to ranks, and batch systems send it before their time limit; a closing terminal
// sends SIGHUP. Construct it once, before any other thread exists, so that all threads inherit the
// blocked mask.
#pragma once
#include <atomic>
#include <csignal>
#include <ctime>
#include <thread>

#include "mtrain/base/export.h"

namespace mtrain {

/// SIGINT, SIGTERM, SIGUSR1, and SIGHUP unless it is ignored now, as under nohup.
MT_API sigset_t stop_signals();

/// What signals mean, one after the other. A terminal, a launcher and `timeout` each send the same
/// signal, so it comes two or three times at once, and a save takes its time: only a SIGINT that
/// comes a second after the first one, which a person sends, ends what the first signal let finish.
/// tick() counts the time. For one thread.
class MT_API StopRequests {
 public:
  enum class Meaning { stop, nothing_new, end_at_once };
  static constexpr timespec kTick{0, 100'000'000};
  Meaning take(int signal);
  /// A tick has passed in which no signal came.
  void tick();

 private:
  static constexpr int kGrace = 10;  // ticks
  bool any_ = false, interrupted_ = false;
  int grace_ = kGrace;  // ticks until a SIGINT is another one
};

class MT_API SignalWatch {
 public:
  /// What this process says when it is to stop: nothing (of a job's processes the first one
  /// speaks), or that it stops, in training with a checkpoint.
  enum class Tells { nothing, stop, checkpoint };
  explicit SignalWatch(Tells tells = Tells::stop);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  /// The signal that asked for a stop; 0: none yet. Safe from any thread.
  int received() const { return received_.load(std::memory_order_relaxed); }

 private:
  void watch(const std::stop_token& stop);
  void tell(int signal);
  const sigset_t watched_ = stop_signals();
  const Tells tells_;
  std::atomic<int> received_{0};
  std::jthread watcher_;
};

}  // namespace mtrain
