#include "mtrain/comm/thread_communicator.h"

#include <algorithm>
#include <vector>

#include "mtrain/base/doorbell.h"
#include "mtrain/base/text.h"

namespace mtrain {

namespace {

using Clock = std::chrono::steady_clock;

class ThreadWork final : public Pending::Work {
 public:
  ThreadWork(std::shared_ptr<ThreadGroup> group, std::shared_ptr<SharedCall> shared, int member,
             const CommCall& call)
      : group_(std::move(group)), shared_(std::move(shared)), member_(member), call_(call) {
    call_.send_counts = call_.recv_counts = {};  // owned by the caller
  }

  bool done() override {
    if (shared_->help()) ring_others();
    if (shared_->complete()) return finish();
    if (state().failed()) leave();
    return false;
  }

  void wait() override {
    if (shared_->help()) ring_others();
    if (shared_->complete()) {
      finish();
      return;
    }
    struct Waiting {
      RankActivity& activity;
      ~Waiting() { activity.end_wait(); }
    } waiting{self().activity};
    waiting.activity.begin_wait(call_, shared_->number(), group_->name);
    wait_for_news();
    finish();
  }

  void drop() noexcept override {
    if (shared_->complete()) return;
    state().fail({world_rank(), cat("it dropped ", place(), " before it was complete")});
    shared_->seal();
  }

  void ring_others() {
    if (call_.kind == CommKind::send || call_.kind == CommKind::recv)
      state().ring({&group_->world_ranks[static_cast<size_t>(call_.peer)], 1}, -1);
    else
      state().ring(group_->world_ranks, world_rank());
  }

 private:
  ThreadState& state() { return *group_->state; }
  int world_rank() const { return group_->world_ranks[static_cast<size_t>(member_)]; }
  ThreadState::Rank& self() { return state().ranks[static_cast<size_t>(world_rank())]; }
  std::string place() const { return group_->place(call_, shared_->number()); }

  bool finish() {
    self().activity.finished(call_, shared_->number(), group_->name);
    return true;
  }

  /// Ends a call of a job that has failed.
  [[noreturn]] void leave() {
    shared_->seal();
    throw peer_error(state().failure(), world_rank(), place());
  }

  void wait_for_news() {
    for (int spin = 0; spin < state().spins; ++spin) {
      if (step()) return;
      pause_core();
    }
    auto begin = Clock::now();
    auto limit = state().context.timeout;
    int num_left = 0;
    for (;;) {
      auto seen =
          shared_->state();  // read before the check, so that changes in between are noticed
      if (step()) return;
      if (int left = state().num_left.load(); left != num_left) {
        num_left = left;
        require_all_present();
      }
      // Once all ranks have arrived, only copying remains, which has no time limit.
      bool limited = limit.count() > 0 && seen == SharedCall::State::gathering;
      auto waited = Clock::now() - begin;
      if (limited && waited >= limit) give_up(waited);
      std::chrono::nanoseconds most = limited ? limit - waited : std::chrono::hours(1);
      self().bell.sleep(most, [&] {
        return shared_->state() != seen || state().failed() || state().num_left.load() != num_left;
      });
    }
  }

  bool step() {
    if (shared_->help()) ring_others();
    if (shared_->complete()) return true;
    if (state().failed()) leave();
    return false;
  }

  void require_all_present() {
    // Who has left is read first: a rank may take part in this call and end right after it.
    std::vector<int> left;
    for (int rank : group_->world_ranks)
      if (state().ranks[static_cast<size_t>(rank)].left.load()) left.push_back(rank);
    for (int rank : group_->missing(call_, member_, *shared_)) {
      if (std::find(left.begin(), left.end(), rank) == left.end()) continue;
      auto& other = state().ranks[static_cast<size_t>(rank)];
      fail(cat("rank ", rank, " has ended and will not reach ", place(), "; its last call was ",
               brief(other.activity.status().last)));
    }
  }

  void give_up(Clock::duration waited) {
    std::vector<std::string> absent;
    for (int rank : group_->missing(call_, member_, *shared_)) {
      auto& other = state().ranks[static_cast<size_t>(rank)];
      RankStatus status = other.activity.status();
      absent.push_back(cat(
          "rank ", rank, " (last finished ", brief(status.last),
          status.waits.number != 0 ? cat(", waits in ", brief(status.waits)) : std::string(), ")"));
    }
    if (absent.empty()) return;  // the last rank has just arrived
    double seconds = std::chrono::duration<double>(waited).count();
    fail(cat("rank ", world_rank(), " waited ", human_seconds(seconds), " in ", place(),
             " for ranks that have not arrived: ", join(absent, ", ")));
  }

  [[noreturn]] void fail(const std::string& message) {
    if (!state().fail({world_rank(), message})) leave();
    shared_->seal();
    throw Error(ErrorClass::peer, message,
                "see what the missing ranks were doing; dist.timeout_minutes sets the limit");
  }

  std::shared_ptr<ThreadGroup> group_;
  std::shared_ptr<SharedCall> shared_;
  int member_;
  CommCall call_;
};

}  // namespace

void ThreadCommunicator::abort(std::string_view reason, ErrorClass error_class) noexcept {
  group_->state->fail({world_rank(), std::string(reason), error_class});
}

void ThreadCommunicator::require_alive(const CommCall& call) const {
  if (group_->state->failed())
    throw peer_error(group_->state->failure(), world_rank(), group_->next_place(rank_, call));
}

Pending ThreadCommunicator::start(const CommCall& call) {
  auto [shared, ready] = group_->post(rank_, call);
  auto work = std::make_unique<ThreadWork>(group_, shared, rank_, call);
  if (ready) {
    // A small amount of work is done faster than other ranks wake up for it; a large amount is
    // divided among all waiting ranks.
    if (shared->num_pieces() <= 1) shared->help();
    work->ring_others();
  }
  return Pending(std::move(work));
}

std::unique_ptr<Communicator> ThreadCommunicator::make_split(const CommCall& call,
                                                             std::string name) {
  auto [shared, ready] = group_->post(rank_, call, name);
  ThreadWork work(group_, shared, rank_, call);
  if (ready) work.ring_others();
  work.wait();
  auto& mine = shared->members()[static_cast<size_t>(rank_)];
  if (!mine.split_group) return nullptr;
  return std::make_unique<ThreadCommunicator>(std::move(mine.split_group), mine.split_rank);
}

}  // namespace mtrain
