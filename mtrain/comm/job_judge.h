// JobJudge: says from what ranks tell of themselves which of them has died, is stopped or is stuck,
// and which is slow. Knows neither threads nor sockets: whoever watches feeds it and asks it, with
// the time. For one thread.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/comm/rank_activity.h"

namespace mtrain {

/// How long is too long. A job with a silent rank is to have ended `silence` after the rank's last
/// sign, or three times its slowest steps when that is more: the judge speaks a little earlier.
struct WatchLimits {
  std::chrono::milliseconds silence{5000};
  std::chrono::milliseconds timeout{
      std::chrono::minutes(10)};  // the most; where steps say nothing, the limit
};

struct WatchFinding {
  std::vector<int> ranks;  // whose fault it is; empty: nobody's alone
  std::string message;  // "rank 2 on n1 has died …", a line for what each rank was doing behind it
};

class MT_API JobJudge {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// `signs`: ranks are processes, which are heard of again and again while they live.
  JobJudge(int num_ranks, const WatchLimits& limits, bool signs, Time now);

  void set_host(int rank, std::string host) { at(rank).host = std::move(host); }
  /// A sign of life.
  void heard(int rank, const RankStatus& status, Time now);
  /// The rank's connection has ended, and it had not said that it would.
  void lost(int rank, Time now);

  /// The first rank that has failed silently. To be called several times a second; when it was not,
  /// the time in between does not count, since this process was stopped itself.
  std::optional<WatchFinding> look(Time now, bool also_stuck = true);
  /// A rank that has become much slower than the others, once: a sentence.
  std::optional<std::string> slow_rank();

  /// What every rank was doing, a line for those alike: "ranks 0-2 on n1: 17 steps done, in barrier
  /// (#3 of …)".
  std::string table() const;
  /// "rank 2 on n1".
  std::string who(int rank) const;
  const RankStatus& status(int rank) const { return ranks_[static_cast<size_t>(rank)].status; }

 private:
  struct Rank {
    std::string host;
    RankStatus status;
    Time sign, progress, lost_at;  // when it was last heard of, last moved on, was lost
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
  bool signs_;
  Time last_look_;
};

}  // namespace mtrain
