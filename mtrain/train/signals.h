// SignalWatch: converts the first stop signal into a request to stop after the current step. mpirun
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

/// SIGINT, SIGTERM, SIGUSR1, and SIGHUP unless the process ignores it, as under nohup.
MT_API sigset_t stop_signals();

/// Interprets a sequence of signals. A terminal, a launcher and `timeout` can each send the same
/// signal, so it may arrive two or three times at once, and saving a checkpoint takes time.
/// Therefore only a SIGINT at least one second after the first SIGINT, which a person has sent,
/// ends the process at once; other repeated signals are ignored. tick() counts the time. For one
/// thread.
class MT_API StopRequests {
 public:
  enum class Meaning { stop, nothing_new, end_at_once };
  static constexpr timespec kTick{0, 100'000'000};
  Meaning take(int signal);
  /// To be called when kTick has passed without a signal.
  void tick();

 private:
  static constexpr int kGrace = 10;  // ticks
  bool any_ = false, interrupted_ = false;
  int grace_ = kGrace;  // remaining ticks until a further SIGINT counts as a second one
};

class MT_API SignalWatch {
 public:
  /// What this process logs when it is asked to stop: nothing (ranks other than rank 0), that it
  /// stops, or that it stops after this step with a checkpoint.
  enum class Notice { nothing, stop, checkpoint };
  explicit SignalWatch(Notice notice = Notice::stop);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  /// The signal that asked for a stop; 0: none yet. Safe from any thread.
  int received() const { return received_.load(std::memory_order_relaxed); }

 private:
  void watch(const std::stop_token& stop);
  void report(int signal);
  const sigset_t watched_ = stop_signals();
  const Notice notice_;
  std::atomic<int> received_{0};
  std::jthread watcher_;
};

}  // namespace mtrain
