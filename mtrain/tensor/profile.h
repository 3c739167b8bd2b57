// Profile: the kernel calls and phases of a run, with start times and durations. An
// ExecutionContext with a Profile calls its backend's kernels through a table that measures time
// (kernel_table.h); without a Profile, timing has no cost. A call ends when its stream has
// completed the work, so a profiled run on an asynchronous device is serialised. For the rank's own
// thread.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "mtrain/tensor/backend.h"

namespace mtrain {

/// The minimal work of a call, independent of the implementation: arithmetic, and bytes that must
/// be read or written at least once.
struct Work {
  double flops = 0, bytes = 0;
};

/// One interval of time of one step.
struct ProfileEvent {
  std::string name;   // "gemm", or a phase of the step: "forward"
  std::string shape;  // "2048x3072x768 NT bf16"; empty for phases
  Work work;
  double start = 0, seconds = 0;  // seconds since the profile began; duration in seconds
  bool phase = false;
};

class MT_API Profile {
 public:
  explicit Profile(const KernelTable& kernels);

  /// The backend's kernels, wrapped with timing. They need a stream whose profile() is this one.
  const KernelTable& recording() const { return recording_; }
  const KernelTable& kernels() const { return kernels_; }
  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  void add(ProfileEvent event) { events_.push_back(std::move(event)); }
  const std::vector<ProfileEvent>& events() const { return events_; }

 private:
  using Clock = std::chrono::steady_clock;
  const KernelTable& kernels_;
  KernelTable recording_;
  std::vector<ProfileEvent> events_;
  Clock::time_point begin_ = Clock::now();
};

/// Times a phase from construction to the end of the scope; does nothing if the profile is null.
class MT_API PhaseTimer {
 public:
  PhaseTimer(Profile* profile, const char* name)
      : profile_(profile), name_(name), start_(profile ? profile->now() : 0) {}
  ~PhaseTimer() {
    if (profile_) profile_->add({name_, "", {}, start_, profile_->now() - start_, true});
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  Profile* profile_;
  const char* name_;
  double start_;
};

}  // namespace mtrain
