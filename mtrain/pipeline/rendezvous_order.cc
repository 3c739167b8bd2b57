#include "mtrain/pipeline/rendezvous_order.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <utility>

#include "mtrain/base/error.h"
#include "mtrain/pipeline/schedule_check.h"

namespace mtrain {
namespace {

struct OpenTransfer {
  size_t from, to;
  Action send, receive;
};

class RendezvousOrder {
 public:
  RendezvousOrder(const Schedule& schedule, const StageMap& map, const Plan& plan,
                  const Costs& costs)
      : schedule_(schedule),
        map_(map),
        micros_(static_cast<size_t>(plan.micro_batches)),
        costs_(costs),
        ranks_(schedule.size()),
        out_(schedule.size()) {
    for (auto& cells : available_) cells.resize(static_cast<size_t>(map.stages()) * micros_);
    for (const Program& program : schedule)
      for (const Action& a : program) split_ |= a.what == ActionKind::weight_grad;
  }

  Schedule run() {
    for (size_t r = 0; r < ranks_.size(); ++r) free_.push({0, r});
    while (!free_.empty()) {
      double now = free_.top().first;
      std::vector<size_t> awake;
      while (
          !free_.empty() &&
          free_.top().first <=
              now +
                  kSameTime) {  // collect all ranks that are free now before any of them continues
        awake.push_back(free_.top().second);
        free_.pop();
        mark_free(awake.back());
      }
      for (size_t i = 0; i < awake.size(); ++i) start_transfers(awake[i], now, awake);
      for (size_t rank : awake) compute(rank, now);
    }
    for (size_t r = 0; r < ranks_.size(); ++r) MT_CHECK_EQ(ranks_[r].next, schedule_[r].size());
    return std::move(out_);
  }

 private:
  static constexpr double kSameTime = 1e-9;
  struct Rank {
    size_t next = 0;
    bool busy = true;
    std::vector<Action> arriving;   // data that becomes available when the rank becomes free: its
                                    // own result, or what it receives
    std::deque<OpenTransfer> open;  // as sender or receiver, oldest first
  };

  size_t cell(int64_t stage, int32_t micro) const {
    return static_cast<size_t>(stage) * micros_ + static_cast<size_t>(micro);
  }
  bool has(ActionKind what, int64_t stage, int32_t micro) const {
    return available_[static_cast<size_t>(what)][cell(stage, micro)];
  }

  /// Marks a rank as free: what it computed or received is available now, and each result that
  /// another rank needs becomes an open transfer.
  void mark_free(size_t rank) {
    ranks_[rank].busy = false;
    for (const Action& a : std::exchange(ranks_[rank].arriving, {})) {
      available_[static_cast<size_t>(a.what)][cell(a.stage, a.micro)] = true;
      int64_t to = a.what == ActionKind::forward    ? a.stage + 1
                   : a.what == ActionKind::backward ? a.stage - 1
                                                    : -1;
      if (to < 0 || to >= map_.stages() || map_.rank(to) == static_cast<int64_t>(rank)) continue;
      bool forward = a.what == ActionKind::forward;
      auto receiver = static_cast<size_t>(map_.rank(to));
      OpenTransfer open{
          rank,
          receiver,
          {forward ? ActionKind::send_forward : ActionKind::send_backward, a.stage, a.micro},
          {forward ? ActionKind::recv_forward : ActionKind::recv_backward, static_cast<int16_t>(to),
           a.micro}};
      ranks_[rank].open.push_back(open);
      ranks_[receiver].open.push_back(open);
    }
  }

  /// Starts open transfers with other free ranks, the oldest first.
  void start_transfers(size_t rank, double now, std::vector<size_t>& awake) {
    for (size_t i = 0; i < ranks_[rank].open.size() && !ranks_[rank].busy;) {
      OpenTransfer h = ranks_[rank].open[i];
      size_t other = h.from == rank ? h.to : h.from;
      if (ranks_[other].busy) {
        ++i;
        continue;
      }
      for (size_t side : {rank, other})
        std::erase_if(ranks_[side].open, [&](const OpenTransfer& o) { return o.send == h.send; });
      out_[h.from].push_back(h.send);
      out_[h.to].push_back(h.receive);
      ranks_[h.to].arriving.push_back(h.receive);
      if (costs_.send > 0) {
        for (size_t side : {rank, other}) occupy(side, now + costs_.send);
      } else {
        mark_free(h.to);
        awake.push_back(other);
      }
    }
  }

  void compute(size_t rank, double now) {
    Rank& r = ranks_[rank];
    if (r.busy || r.next == schedule_[rank].size()) return;
    const Action a = schedule_[rank][r.next];
    if (!ready(a)) return;
    ++r.next;
    out_[rank].push_back(a);
    if (is_compute(a.what)) r.arriving.push_back(a);
    occupy(rank, now + duration(a));
  }

  void occupy(size_t rank, double until) {
    ranks_[rank].busy = true;
    free_.push({until, rank});
  }

  /// Only data from other stages can be missing, since the order of a rank's own actions is valid.
  bool ready(const Action& a) const {
    bool forward = a.what == ActionKind::forward;
    int64_t from = a.stage + (forward ? -1 : 1);
    if ((!forward && a.what != ActionKind::backward) || from < 0 || from >= map_.stages())
      return true;
    if (map_.rank(from) == map_.rank(a.stage)) return has(a.what, from, a.micro);
    return has(forward ? ActionKind::recv_forward : ActionKind::recv_backward, a.stage, a.micro);
  }

  double duration(const Action& a) const { return costs_.occupying(a, split_); }

  const Schedule& schedule_;
  const StageMap& map_;
  size_t micros_;
  const Costs& costs_;
  bool split_ = false;
  std::vector<Rank> ranks_;
  std::vector<bool> available_[kNumKeys];  // by ActionKind, of stage and micro-batch
  std::priority_queue<std::pair<double, size_t>, std::vector<std::pair<double, size_t>>,
                      std::greater<>>
      free_;
  Schedule out_;
};

}  // namespace

Schedule with_rendezvous_transfers(const Schedule& schedule, const StageMap& map, const Plan& plan,
                                   const Costs& costs) {
  return RendezvousOrder(schedule, map, plan, costs).run();
}

}  // namespace mtrain
