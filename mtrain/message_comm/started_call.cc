#include "mtrain/message_comm/started_call.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace mtrain::message_comm {

namespace {

using Clock = std::chrono::steady_clock;

// A waiting rank occupies a core, which another rank may need: after a first moment it yields the
// core at every poll, and after a few milliseconds it sleeps between polls.
void idle(int64_t looks) {
  if (looks < 50) return;
  if (looks < 5000)
    sched_yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace

Group::Group(std::shared_ptr<Job> job_in, std::unique_ptr<Channel> channel_in, std::string name_in,
             std::vector<int> world_ranks_in)
    : job(std::move(job_in)),
      channel(std::move(channel_in)),
      name(std::move(name_in)),
      world_ranks(std::move(world_ranks_in)),
      num_sent(world_ranks.size(), 0),
      num_received(world_ranks.size(), 0) {}

CommCall Header::call() const {
  return {.kind = kind,
          .reduce = reduce,
          .dtype = dtype,
          .peer = peer,
          .tag = tag,
          .count = count,
          .uneven = uneven != 0};
}

StartedCall::StartedCall(std::shared_ptr<Group> group, const CommCall& call, uint64_t number)
    : group_(std::move(group)), call_(call), number_(number) {
  group_->job->add(*this);
}

StartedCall::~StartedCall() { group_->job->remove(*this); }

std::string StartedCall::place() const {
  return call_place(call_, number_, group_->name, group_->world_ranks);
}

bool StartedCall::advance() {
  if (complete_) return true;
  complete_ = step();
  if (RankActivity* activity = group_->job->activity(); complete_ && activity)
    activity->finished(call_, number_, group_->name);
  return complete_;
}

bool StartedCall::done() {
  group_->job->progress();
  // A call that all ranks had started before the failure is still completed.
  if (!complete_ && group_->job->failed() && !advance()) leave();
  return complete_;
}

void StartedCall::wait() {
  Job& job = *group_->job;
  auto limit = job.context().timeout;
  Clock::time_point begin;
  struct Waiting {  // reported only if it takes longer than a moment
    RankActivity* activity = nullptr;
    ~Waiting() {
      if (activity) activity->end_wait();
    }
  } waiting;
  for (int64_t looks = 0; !done(); ++looks) {
    idle(looks);
    if (looks == 50) {
      begin = Clock::now();
      waiting.activity = job.activity();
      if (waiting.activity) waiting.activity->begin_wait(call_, number_, group_->name);
    }
    if (looks <= 50 || limit.count() == 0 || looks % 64 != 0) continue;
    if (auto waited = Clock::now() - begin; waited > limit) give_up(waited);
  }
}

void StartedCall::drop() noexcept {
  if (complete_) return;
  group_->job->fail(
      {group_->world(group_->rank()), cat("it dropped ", place(), " before it was complete")},
      ErrorClass::peer);
  release();
}

void StartedCall::leave() {
  release();
  throw peer_error(group_->job->failure(), group_->world(group_->rank()), place());
}

void StartedCall::give_up(Clock::duration waited) {
  std::vector<std::string> absent;
  std::vector<int> ranks = missing();
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  for (int r : ranks)
    absent.push_back(
        cat("rank ", group_->world(r), " (", group_->job->last_seen(group_->world(r)), ")"));
  int me = group_->world(group_->rank());
  std::string message =
      cat("rank ", me, " waited ", human_seconds(std::chrono::duration<double>(waited).count()),
          " in ", place(), " for ranks that have not arrived: ", join(absent, ", "));
  group_->job->fail({me, message}, ErrorClass::peer);
  release();
  throw Error(ErrorClass::peer, message,
              "see what the missing ranks were doing; dist.timeout_minutes sets the limit");
}

bool StartedCall::fits(int from, const Header& theirs, const CommCall& mine, int64_t sent) {
  group_->job->saw(group_->world(from), theirs.kind, theirs.number, group_->name);
  bool uneven_fits = theirs.uneven == 0 || (theirs.count == mine.count && theirs.expected == sent);
  if (agree(mine, theirs.call()) && uneven_fits) return true;
  group_->job->fail({-1, mismatch_reason(group_->name, number_, group_->world(from), theirs.call(),
                                         group_->world(group_->rank()), mine)},
                    ErrorClass::peer);
  return false;
}

}  // namespace mtrain::message_comm
