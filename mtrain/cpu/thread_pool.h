// ThreadPool: runs loops over independent tasks on the caller's thread and a fixed number of
// workers. It tolerates oversubscribed cores, where a worker may not be scheduled for milliseconds:
// tasks are taken in pieces by any running thread, a loop waits only for pieces that were taken
// (never for a worker that has not started one), and a waiting thread spins for a short time and
// then sleeps. (OpenMP loops wait for every thread, and GNU's implementation spins for a whole time
// slice.)
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "mtrain/base/doorbell.h"
#include "mtrain/base/export.h"

namespace mtrain {
class PluginCall;
}

namespace mtrain::cpu {

/// For one calling thread at a time; a task must not start a loop on the same pool. Workers start
/// with the first loop that needs them. If the system cannot create more threads, loops run on
/// fewer. Owns its workers.
class MT_API ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  /// Calls f(task, thread) once for every task in [0, tasks). Concurrent calls have different
  /// values of `thread`, which is in [0, threads()). Each thread prefers a fixed share of
  /// consecutive tasks, so loops over the same rows find them in its cache. f must not throw.
  template <class F>
  void for_even(int64_t tasks, const F& f) {
    run(tasks, threads_, &call<F>, &f);
  }
  /// The same for tasks of different cost: each idle thread takes the next task.
  template <class F>
  void for_uneven(int64_t tasks, const F& f) {
    run(tasks, 1, &call<F>, &f);
  }

 private:
  using Piece = void (*)(const void* f, int64_t begin, int64_t end, int thread);
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
    int64_t grain = 1;
  };
  struct alignas(64) Worker {
    Doorbell bell;
    std::thread thread;
  };

  template <class F>
  static void call(const void* f, int64_t begin, int64_t end, int thread) {
    for (int64_t task = begin; task < end; ++task) (*static_cast<const F*>(f))(task, thread);
  }
  void run(int64_t tasks, int shares, Piece piece, const void* f);
  void start_workers();
  void divide(int64_t tasks, int shares);
  void take_pieces(int thread) noexcept;
  void close_and_wait();
  void work(int thread, Worker& self) noexcept;
  bool enter(uint32_t& seen);
  void leave();

  const int threads_;
  std::vector<std::unique_ptr<Worker>> workers_;  // for threads 1, 2, …
  bool started_ = false;
  // The current loop: written while the gate is closed and no worker is inside.
  std::unique_ptr<Share[]> shares_;
  int num_shares_ = 0;
  Piece piece_ = nullptr;
  const void* f_ = nullptr;
  const PluginCall* caller_in_ = nullptr;  // the plugin call during which the loop runs
  // Packs the loop's number (upper half), a bit that lets workers enter, and the number of workers
  // inside.
  alignas(64) std::atomic<uint64_t> gate_{0};
  std::atomic<bool> ending_{false};
  Doorbell caller_;
};

}  // namespace mtrain::cpu
