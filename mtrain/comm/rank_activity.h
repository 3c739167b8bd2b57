// RankActivity: what a rank of a job is doing, told by its thread and read by whoever watches: how
// many steps it has done, which call it waits in, whether it is at something that takes long. One
// per rank of a job; groups split off share it. Thread-safe. RankStatus is a copy of it, plain
// bytes that travel between processes of one build.
#pragma once
#include <array>
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/comm/call.h"

namespace mtrain {

/// A call as other ranks are told of it.
struct CallNote {
  uint64_t number = 0;  // of its group, from 1; 0: no call
  int64_t count = 0;
  int32_t peer = -1, tag = 0;
  CommKind kind = CommKind::barrier;
  ReduceOp reduce = ReduceOp::sum;
  DType dtype = DType::u8;
  bool uneven = false;
  char group[28] = "";  // cut when longer
};
/// "all_reduce #3 of group 'tp'", "nothing".
MT_API std::string brief(const CallNote& note);
/// "all_reduce sum of 1000 fp32 (#3 of group 'tp')", "nothing".
MT_API std::string describe(const CallNote& note);

struct RankStatus {
  int64_t step = -1;  // steps done; -1: none was begun
  uint64_t progress =
      0;  // grows with every call that is begun, moves data or ends, and with every step
  double slow_step = 0;  // seconds: the 99th percentile of the steps of late; 0: too few were seen
  double busy_step =
      0;  // seconds of a step of late outside of calls, on average; 0: too few were seen
  CallNote waits, last;  // the call it waits in; the one it finished last
  bool ended = false;    // it will make no call any more
  bool failed = false;   // ended by an error, which it tells by itself
  char doing[46] = "";   // at something that takes long: "saving a checkpoint"
};

class MT_API RankActivity {
 public:
  /// Steps that must have been seen before slow_step says something, and whose busy time is
  /// averaged.
  static constexpr size_t kFewSteps = 20, kBusySteps = 6;

  void begin_wait(const CommCall& call, uint64_t number, std::string_view group);
  /// Data of the call that is waited for have moved.
  void tick();
  void end_wait();
  void finished(const CommCall& call, uint64_t number, std::string_view group);
  /// What was waited for until now belongs to no step.
  void begin_step();
  /// `step` steps are done, the last one in `seconds`.
  void end_step(int64_t step, double seconds);
  /// Until end_long() it is at `what`, and nobody is surprised that it takes long. Does not nest.
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

/// While it lives, the rank of `activity` is at `what`. Null: nobody watches.
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
