// ThreadPool: loops over independent tasks on the caller's thread and a fixed number of workers.
// Where other programs want the same cores a worker may get none for milliseconds: so tasks are
// taken one piece at a time by whoever runs, a loop waits only for pieces that were taken, never
// for a worker that has not begun, and who waits spins for microseconds and then sleeps. (OpenMP's
// loops wait for every thread, and GNU's spin for as long as a core would be theirs.)
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
/// with the first loop that needs them; where the system has no more threads, loops run on fewer.
class MT_API ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  /// Calls f(task, thread) once for every task in [0, tasks). No two calls at a time have the same
  /// `thread`, which is below threads(). Each thread prefers its share of consecutive tasks, so
  /// that loops over the same rows find them in its cache. f must not throw.
  template <class F>
  void for_even(int64_t tasks, const F& f) {
    run(tasks, threads_, &call<F>, &f);
  }
  /// The same for tasks of uneven size: each thread that is free takes the next.
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
  std::vector<std::unique_ptr<Worker>> workers_;  // of threads 1, 2, …
  bool started_ = false;
  // The loop under way: written while the gate is closed and nobody is inside.
  std::unique_ptr<Share[]> shares_;
  int num_shares_ = 0;
  Piece piece_ = nullptr;
  const void* f_ = nullptr;
  const PluginCall* caller_in_ = nullptr;  // the plugin's call that the loop is part of
  // The number of the loop (upper half), whether workers may still enter it, and how many are
  // inside.
  alignas(64) std::atomic<uint64_t> gate_{0};
  std::atomic<bool> ending_{false};
  Doorbell caller_;
};

}  // namespace mtrain::cpu
