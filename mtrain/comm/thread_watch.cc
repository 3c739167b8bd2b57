#include "mtrain/comm/thread_watch.h"

#include <unistd.h>

#include "mtrain/base/text.h"
#include "mtrain/comm/job_judge.h"

namespace mtrain {

namespace {
using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{100};
// The time that threads need to return from their calls; a thread that continues to compute after
// another's error gets the same time, so that the job ends within the limit.
constexpr std::chrono::milliseconds kComeBack{500};
}  // namespace

ThreadWatch::ThreadWatch(std::shared_ptr<ThreadState> state)
    : state_(std::move(state)), thread_([this] { watch(); }) {}

ThreadWatch::~ThreadWatch() {
  {
    std::lock_guard lock(mutex_);
    end_ = true;
  }
  ending_.notify_all();
  thread_.join();
}

bool ThreadWatch::sleep(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !ending_.wait_for(lock, time, [this] { return end_; });
}

void ThreadWatch::watch() {
  const WatchOptions& options = state_->context.watch;
  JobJudge judge(state_->size, {options.silence, state_->context.timeout}, false, Clock::now());
  char host[256] = "";
  if (gethostname(host, sizeof(host) - 1) == 0)
    for (int r = 0; r < state_->size; ++r) judge.set_host(r, host);
  while (sleep(kLook)) {
    if (state_->failed()) return after_failure();
    auto now = Clock::now();
    for (int r = 0; r < state_->size; ++r)
      judge.heard(r, state_->ranks[static_cast<size_t>(r)].activity.status(), now);
    if (auto slow = judge.slow_rank(); slow && options.note) options.note(*slow);
    auto found = judge.look(now);
    if (!found) continue;
    CommFailure failure{.rank = found->ranks.empty() ? -1 : found->ranks[0],
                        .reason = found->message,
                        .detected_by_watcher = true};
    if (!state_->fail(failure)) continue;
    if (sleep(kComeBack) && options.give_up) options.give_up(peer_error(failure, 0, ""), true);
    return;
  }
}

void ThreadWatch::after_failure() {
  const WatchOptions& options = state_->context.watch;
  auto patience =
      std::chrono::duration_cast<std::chrono::milliseconds>(options.silence * kFinishShare);
  if (!sleep(patience) || !options.give_up) return;
  CommFailure failure = state_->failure();
  std::string who = failure.rank < 0 ? "" : cat("rank ", failure.rank, " failed: ");
  options.give_up(Error(failure.error_class, cat(who, failure.reason),
                        "other ranks did not stop by themselves"),
                  true);
}

}  // namespace mtrain
