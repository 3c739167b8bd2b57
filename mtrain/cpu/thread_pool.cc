#include "mtrain/cpu/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/plugin_call.h"

namespace mtrain::cpu {

namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kOpen = uint64_t{1} << 31, kInside = kOpen - 1;
constexpr int kPiecesPerShare = 16;
// Most gaps between two loops of a step are shorter than this; waking a sleeping thread costs about
// as much.
constexpr auto kSpin = std::chrono::microseconds(100);

uint32_t loop_of(uint64_t gate) { return static_cast<uint32_t>(gate >> 32); }

/// Waits until news() is true: spins for a while, then sleeps.
template <class News>
void wait_for(Doorbell& bell, News&& news) {
  auto end = Clock::now() + kSpin;
  do {
    for (int look = 0; look < 32; ++look) {
      if (news()) return;
      pause_core();
    }
  } while (Clock::now() < end);
  while (!news()) bell.sleep(std::chrono::hours(1), news);
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads) {}

ThreadPool::~ThreadPool() {
  ending_.store(true);
  for (auto& worker : workers_) {
    worker->bell.ring();
    worker->thread.join();
  }
}

void ThreadPool::start_workers() {
  started_ = true;
  shares_ = std::make_unique<Share[]>(static_cast<size_t>(threads_));
  for (int thread = 1; thread < threads_; ++thread) {
    auto worker = std::make_unique<Worker>();
    workers_.push_back(
        std::move(worker));  // added before its thread runs, because a worker looks itself up
    try {
      workers_.back()->thread = std::thread([this, thread, self = workers_.back().get()] {
        pthread_setname_np(pthread_self(), cat("cpu ", thread).c_str());
        work(thread, *self);
      });
    } catch (const std::system_error& error) {
      workers_.pop_back();
      log_warn("kernels run on ", thread, " of ", threads_,
               " threads: the system cannot start more (", error.what(), ")");
      return;
    }
  }
}

void ThreadPool::divide(int64_t tasks, int shares) {
  num_shares_ = static_cast<int>(std::min<int64_t>(shares, tasks));
  int64_t each = tasks / num_shares_, larger = tasks % num_shares_, begin = 0;
  for (int i = 0; i < num_shares_; ++i) {
    Share& share = shares_[static_cast<size_t>(i)];
    int64_t length = each + (i < larger);
    share.next.store(begin, std::memory_order_relaxed);
    share.end = begin += length;
    share.grain = shares == 1 ? 1 : std::max<int64_t>(1, length / kPiecesPerShare);
  }
}

void ThreadPool::run(int64_t tasks, int shares, Piece piece, const void* f) {
  if (threads_ <= 1 || tasks <= 1) {
    if (tasks > 0) piece(f, 0, tasks, 0);
    return;
  }
  if (!started_) start_workers();
  MT_CHECK(piece_ == nullptr, "a loop was started inside of another of the same thread pool");
  divide(tasks, shares);
  piece_ = piece;
  f_ = f;
  caller_in_ = PluginCall::current();
  gate_.store((uint64_t{loop_of(gate_.load(std::memory_order_relaxed))} + 1) << 32 | kOpen);
  size_t helpers = std::min(workers_.size(), static_cast<size_t>(tasks - 1));
  for (size_t i = 0; i < helpers; ++i) workers_[i]->bell.ring();
  take_pieces(0);
  close_and_wait();
  piece_ = nullptr;
}

void ThreadPool::take_pieces(int thread) noexcept {
  for (int i = 0; i < num_shares_; ++i) {
    Share& share = shares_[static_cast<size_t>((thread + i) % num_shares_)];
    for (;;) {
      int64_t begin = share.next.fetch_add(share.grain, std::memory_order_relaxed);
      if (begin >= share.end) break;
      piece_(f_, begin, std::min(begin + share.grain, share.end), thread);
    }
  }
}

void ThreadPool::close_and_wait() {
  uint64_t gate = gate_.fetch_and(~kOpen);
  if ((gate & kInside) == 0) return;
  wait_for(caller_, [&] { return (gate_.load() & kInside) == 0; });
}

bool ThreadPool::enter(uint32_t& seen) {
  uint64_t gate = gate_.load();
  for (;;) {
    if (loop_of(gate) == seen || (gate & kOpen) == 0) return false;
    if (gate_.compare_exchange_weak(gate, gate + 1)) break;
  }
  seen = loop_of(gate);
  return true;
}

void ThreadPool::leave() {
  uint64_t before = gate_.fetch_sub(1);
  if ((before & kInside) == 1 && (before & kOpen) == 0) caller_.ring();
}

void ThreadPool::work(int thread, Worker& self) noexcept {
  uint32_t seen = 0;
  for (;;) {
    bool entered = false;
    wait_for(self.bell, [&] { return entered || (entered = enter(seen)) || ending_.load(); });
    if (!entered) return;
    PluginCall::exchange_current(caller_in_);
    take_pieces(thread);
    PluginCall::exchange_current(nullptr);
    leave();
  }
}

}  // namespace mtrain::cpu
