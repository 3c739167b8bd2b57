// RankActivity: the current activity of a rank, written by the rank's thread and read by the
// watcher: the number of finished steps, the call in which it waits, and long operations. One per
// rank of a job; all groups of the rank share it. Thread-safe. RankStatus is a copy as plain bytes,
// which processes of one build send to each other.
#pragma once
#include <array>
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/comm/call.h"

namespace mtrain {

/// The description of a call in reports to other ranks.
struct CallNote {
  uint64_t number = 0;  // counts the calls of its group from 1; 0: no call
  int64_t count = 0;
  int32_t peer = -1, tag = 0;
  CommKind kind = CommKind::barrier;
  ReduceOp reduce = ReduceOp::sum;
  DType dtype = DType::u8;
  bool uneven = false;
  char group[28] = "";  // truncated if longer
};
/// "all_reduce #3 of group 'tp'", "nothing".
MT_API std::string brief(const CallNote& note);
/// "all_reduce sum of 1000 fp32 (#3 of group 'tp')", "nothing".
MT_API std::string describe(const CallNote& note);

struct RankStatus {
  int64_t step = -1;      // finished steps; -1: no step was started
  uint64_t progress = 0;  // incremented when a call starts, moves data or ends, and with every step
  double slow_step = 0;   // seconds: 99th percentile of recent steps; 0: too few steps
  double busy_step = 0;  // seconds: average time of recent steps outside of calls; 0: too few steps
  CallNote waits, last;  // the call in which it waits; the last finished call
  bool ended = false;    // it makes no further calls
  bool failed = false;   // ended by an error, which the rank reports itself
  char doing[46] = "";   // the current long operation: "saving a checkpoint"
};

class MT_API RankActivity {
 public:
  /// The number of steps before slow_step is known, and the number of steps over which busy_step is
  /// averaged.
  static constexpr size_t kFewSteps = 20, kBusySteps = 6;

  void begin_wait(const CommCall& call, uint64_t number, std::string_view group);
  /// Data of the current call were transferred.
  void tick();
  void end_wait();
  void finished(const CommCall& call, uint64_t number, std::string_view group);
  /// Starts a step: earlier waiting time does not count for it.
  void begin_step();
  /// `step` steps are finished; the last one took `seconds`.
  void end_step(int64_t step, double seconds);
  /// Starts a long operation `what`: until end_long(), the rank does not count as stuck. Does not
  /// nest.
  void begin_long(std::string_view what);
  void end_long();
  void end(bool failed = false);

  RankStatus status() const;

 private:
  using Clock = std::chrono::steady_clock;
  mutable std::mutex mutex_;
  RankStatus status_;
  std::vector<double> steps_;  // the last ones, oldest overwritten
  size_t next_step_ = 0;
  std::array<double, kBusySteps> busy_{};
  size_t num_busy_ = 0;
  Clock::time_point wait_began_;
  double waited_ = 0;  // seconds in this step
};

/// Marks a long operation from construction to destruction. `activity` null: does nothing.
class MT_API LongOperation {
 public:
  LongOperation(RankActivity* activity, std::string_view what) : activity_(activity) {
    if (activity_) activity_->begin_long(what);
  }
  ~LongOperation() {
    if (activity_) activity_->end_long();
  }
  LongOperation(const LongOperation&) = delete;
  LongOperation& operator=(const LongOperation&) = delete;

 private:
  RankActivity* activity_;
};

}  // namespace mtrain
