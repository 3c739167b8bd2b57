#include "mtrain/comm/job_judge.h"

#include <algorithm>

#include "mtrain/base/counted.h"
#include "mtrain/base/text.h"

namespace mtrain {

namespace {

using Seconds = std::chrono::duration<double>;

// The part of the limit that is reserved for notifying all ranks and for the end of the launcher.
constexpr Seconds kToEnd{1.0};
// A live rank sends several heartbeats per second, even on a busy machine.
constexpr double kHeartbeatShare = 0.6;
// When all ranks are killed together, those that live a moment longer must not blame the first.
constexpr auto kLostTogether = std::chrono::milliseconds(150);
constexpr auto kOwnStop = std::chrono::seconds(1);
// A rank is slow if its work takes kSlow times the median of the ranks, and kSlowSeconds longer per
// step.
constexpr double kSlow = 1.5, kSlowSeconds = 0.005;

std::string seconds_text(Seconds s) {
  if (s.count() < 1) return cat(static_cast<int64_t>(s.count() * 1000 + 0.5), " ms");
  auto tenths = static_cast<int64_t>(s.count() * 10 + 0.5);
  return cat(tenths / 10, ".", tenths % 10, " s");
}

std::string state_text(const RankStatus& s) {
  std::string where = s.waits.number > 0 ? cat("in ", describe(s.waits)) : std::string();
  std::string last =
      s.last.number > 0 ? cat("after ", describe(s.last)) : std::string("before any call");
  std::string text = s.step < 0 ? "no step done" : cat(counted(s.step, "step"), " done");
  if (s.doing[0] != '\0') text += cat(", ", s.doing);
  if (s.ended) return cat(text, ", ended ", last);
  return cat(text, ", ", where.empty() ? cat("computing ", last) : where);
}

/// "rank 3", "ranks 0-2, 5".
std::string rank_ranges_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text +=
        cat(i == 0 ? "" : ", ", ranks[i], end - i > 1 ? cat("-", ranks[end - 1]) : std::string());
    i = end;
  }
  return text;
}

}  // namespace

JobJudge::JobJudge(int num_ranks, const WatchLimits& limits, bool heartbeats, Time now)
    : ranks_(static_cast<size_t>(num_ranks)),
      limits_(limits),
      heartbeats_(heartbeats),
      last_look_(now) {
  for (Rank& r : ranks_) r.heard = r.progress = now;
}

void JobJudge::heard(int rank, const RankStatus& status, Time now) {
  Rank& r = at(rank);
  r.heard = now;
  if (status.progress != r.status.progress) r.progress = now;
  r.status = status;
}

void JobJudge::lost(int rank, Time now) {
  Rank& r = at(rank);
  if (!r.lost) r.lost_at = now;
  r.lost = true;
}

std::string JobJudge::who(int rank) const {
  const std::string& host = ranks_[static_cast<size_t>(rank)].host;
  return host.empty() ? cat("rank ", rank) : cat("rank ", rank, " on ", host);
}

std::string JobJudge::table() const {
  std::vector<std::pair<std::string, std::vector<int>>>
      lines;  // few, because most ranks do the same
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const Rank& rank = ranks_[r];
    bool gone = rank.lost || (heartbeats_ && last_look_ - rank.heard > kOwnStop);
    std::string key = cat(rank.host.empty() ? "" : cat(" on ", rank.host),
                          gone ? ", when last heard of: " : ": ", state_text(rank.status));
    auto found = std::find_if(lines.begin(), lines.end(),
                              [&](const auto& line) { return line.first == key; });
    if (found == lines.end()) found = lines.insert(lines.end(), {key, {}});
    found->second.push_back(static_cast<int>(r));
  }
  std::string text;
  for (const auto& [key, ranks] : lines) text += cat("\n  ", rank_ranges_text(ranks), key);
  return text;
}

WatchFinding JobJudge::finding(std::vector<int> ranks, const std::string& what) const {
  return {std::move(ranks), cat(what, table())};
}

Seconds JobJudge::limit() const {
  double slow = 0;
  for (const Rank& r : ranks_) {
    if (r.status.ended) continue;
    if (r.status.slow_step == 0 || r.status.doing[0] != '\0') return limits_.timeout;
    slow = std::max(slow, r.status.slow_step);
  }
  Seconds most = limits_.timeout;
  Seconds whole = std::max(Seconds(limits_.silence), Seconds(3 * slow));
  return std::min(most, std::max(whole - kToEnd, whole / 2));
}

std::optional<WatchFinding> JobJudge::look(Time now, bool also_stuck) {
  auto away = now - last_look_;
  last_look_ = now;
  if (away > kOwnStop)
    for (Rank& r : ranks_) {
      r.heard += away;
      r.progress += away;
    }
  if (heartbeats_)
    if (auto found = look_for_dead(now)) return found;
  return also_stuck ? look_for_stuck(now) : std::nullopt;
}

std::optional<WatchFinding> JobJudge::look_for_dead(Time now) {
  std::vector<int> dead, still;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& r = ranks_[i];
    if (r.status.ended) continue;
    if (r.lost && now - r.lost_at >= kLostTogether) dead.push_back(static_cast<int>(i));
    if (!r.lost && now - r.heard > limits_.silence * kHeartbeatShare)
      still.push_back(static_cast<int>(i));
  }
  if (!dead.empty())
    return finding(dead, cat(who(dead[0]),
                             " has died without an error message: it was killed, it crashed, or "
                             "its machine failed"));
  if (still.empty()) return std::nullopt;
  return finding(still, cat(who(still[0]), " has sent no heartbeat for ",
                            seconds_text(now - ranks_[static_cast<size_t>(still[0])].heard),
                            ": it was stopped by a signal or a debugger, or its machine failed"));
}

std::optional<WatchFinding> JobJudge::look_for_stuck(Time now) {
  Seconds most = limit();
  std::vector<int> stuck;
  bool waiting = false, moving = false;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& r = ranks_[i];
    bool idle = now - r.progress > most;
    if (r.status.waits.number > 0) {
      waiting |= idle;
      moving |= !idle;
    } else if (!r.status.failed) {
      if (idle) stuck.push_back(static_cast<int>(i));
      moving |= !idle && !r.status.ended;
    }
  }
  if (!waiting) return std::nullopt;
  std::stable_partition(stuck.begin(), stuck.end(), [this](int r) { return !status(r).ended; });
  if (!stuck.empty()) {
    const Rank& r = ranks_[static_cast<size_t>(stuck[0])];
    if (r.status.ended)
      return finding(stuck, cat(who(stuck[0]), " has ended, and others wait for it"));
    std::erase_if(stuck, [this](int i) { return status(i).ended; });
    return finding(
        stuck,
        cat(who(stuck[0]), " has not reached its next call for ", seconds_text(now - r.progress),
            ", and others wait for it: it hangs in computation, reading or writing"));
  }
  if (moving) return std::nullopt;
  return finding({},
                 cat("all ranks have waited for each other for more than ", seconds_text(most)));
}

std::optional<std::string> JobJudge::slow_rank() {
  std::vector<double> busy;
  for (const Rank& r : ranks_) {
    if (r.status.busy_step == 0 || r.status.ended) return std::nullopt;
    busy.push_back(r.status.busy_step);
  }
  auto middle = busy.begin() + static_cast<std::ptrdiff_t>((busy.size() - 1) / 2);
  std::nth_element(busy.begin(), middle, busy.end());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& r = ranks_[i];
    double times = r.status.busy_step / std::max(*middle, 1e-9);
    if (times < kSlow || r.status.busy_step - *middle < kSlowSeconds) {
      r.slow_since = -1;
      if (times < (1 + kSlow) / 2) r.reported = false;
      continue;
    }
    if (r.slow_since < 0) r.slow_since = r.status.step;
    // A single slow moment is not reported: all steps of the average must come after it.
    if (r.reported || r.status.step - r.slow_since < static_cast<int64_t>(RankActivity::kBusySteps))
      continue;
    r.reported = true;
    auto tenths = static_cast<int64_t>(times * 10 + 0.5);
    return cat(who(static_cast<int>(i)), " is slow: after step ", r.status.step,
               " its own work takes ", tenths / 10, ".", tenths % 10,
               " times as long as that of the others (", seconds_text(Seconds(r.status.busy_step)),
               " of a step, ", seconds_text(Seconds(*middle)), "); all ranks wait for it");
  }
  return std::nullopt;
}

}  // namespace mtrain
