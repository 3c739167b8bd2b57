// JobJudge: decides from the status reports of ranks which rank has died, is stopped, is stuck or
// is slow. Independent of threads and sockets: its caller passes reports and the current time. For
// one thread.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/comm/rank_activity.h"

namespace mtrain {

/// Time limits. A job ends within `silence` after the last heartbeat of a rank that is stopped. It
/// ends after max(silence, 3 x the slowest steps) without progress of a rank that is stuck, but
/// after `timeout` at the latest. While step times are unknown, or during a long operation, the
/// limit for stuck ranks is `timeout`. The judge reports the rank a little earlier.
struct WatchLimits {
  std::chrono::milliseconds silence{5000};
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};
};

struct WatchFinding {
  std::vector<int> ranks;  // the ranks at fault; empty: no single rank
  std::string message;     // "rank 2 on n1 has died …", followed by the status of all ranks
};

class MT_API JobJudge {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// `heartbeats`: ranks are processes, which send reports periodically while they live.
  JobJudge(int num_ranks, const WatchLimits& limits, bool heartbeats, Time now);

  void set_host(int rank, std::string host) { at(rank).host = std::move(host); }
  /// Records a report of a rank.
  void heard(int rank, const RankStatus& status, Time now);
  /// The connection of the rank was closed without notice.
  void lost(int rank, Time now);

  /// The first rank that has failed silently. Call it several times a second; a longer pause
  /// between calls does not count, since this process was stopped itself.
  std::optional<WatchFinding> look(Time now, bool also_stuck = true);
  /// A sentence about a rank that has become much slower than the others; not repeated for the same
  /// rank until it has caught up.
  std::optional<std::string> slow_rank();

  /// The status of every rank, one line for ranks with the same status: "ranks 0-2 on n1: 17 steps
  /// done, in barrier (#3 of …)".
  std::string table() const;
  /// "rank 2 on n1".
  std::string who(int rank) const;
  const RankStatus& status(int rank) const { return ranks_[static_cast<size_t>(rank)].status; }

 private:
  struct Rank {
    std::string host;
    RankStatus status;
    Time heard, progress, lost_at;  // times of the last report, of the last progress, and of the
                                    // loss of the connection
    bool lost = false;
    int64_t slow_since = -1;  // the step at which it was first found slow
    bool reported = false;
  };
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  std::optional<WatchFinding> look_for_dead(Time now);
  std::optional<WatchFinding> look_for_stuck(Time now);
  std::chrono::duration<double> limit() const;
  WatchFinding finding(std::vector<int> ranks, const std::string& what) const;

  std::vector<Rank> ranks_;
  WatchLimits limits_;
  bool heartbeats_;
  Time last_look_;
};

}  // namespace mtrain
