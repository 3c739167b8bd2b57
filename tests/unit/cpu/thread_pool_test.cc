#include "mtrain/cpu/thread_pool.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "mtrain/base/text.h"

namespace mtrain::cpu {
namespace {

/// Waits until the thread of this id sleeps in the kernel; for ever when it does not.
void wait_until_asleep(pid_t id) {
  for (;;) {
    std::ifstream file(cat("/proc/self/task/", id, "/stat"));
    std::string stat((std::istreambuf_iterator<char>(file)), {});
    if (auto at = stat.rfind(") "); at != std::string::npos && stat[at + 2] == 'S') return;
    std::this_thread::yield();
  }
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST_CASE("each task runs once, on a thread of its own number") {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int64_t tasks : {0, 1, 2, 3, 7, 8, 9, 100, 1001}) {
      for (bool even : {true, false}) {
        CAPTURE(threads);
        CAPTURE(tasks);
        CAPTURE(even);
        std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks)),
            inside(static_cast<size_t>(threads));
        std::atomic<int> wrong{0};
        auto f = [&](int64_t task, int thread) {
          if (thread < 0 || thread >= threads) return void(++wrong);
          auto& here = inside[static_cast<size_t>(thread)];
          if (here.fetch_add(1) != 0) ++wrong;
          ++runs[static_cast<size_t>(task)];
          here.fetch_sub(1);
        };
        even ? pool.for_even(tasks, f) : pool.for_uneven(tasks, f);
        CHECK_EQ(wrong.load(), 0);
        for (auto& count : runs) CHECK_EQ(count.load(), 1);
      }
    }
  }
}

TEST_CASE("many short loops in a row, with pauses in which workers fall asleep") {
  ThreadPool pool(3);
  int64_t sum = 0;
  for (int loop = 0; loop < 20000; ++loop) {
    int64_t part[5] = {};
    pool.for_even(5, [&](int64_t task, int) { part[task] = task + loop; });
    for (int64_t value : part) sum += value;
    if (loop % 2000 == 0) sleep_ms(2);
  }
  CHECK_EQ(sum, int64_t{20000} * 10 + 5 * (int64_t{19999} * 20000 / 2));
}

TEST_CASE("a thread that is held up in its task delays no other task") {
  // The first task to run on a worker waits until all others are done: a loop that had given its
  // worker a fixed share of the tasks would never end.
  for (bool even : {true, false}) {
    CAPTURE(even);
    ThreadPool pool(2);
    constexpr int64_t kTasks = 8;
    std::atomic<int64_t> done{0};
    std::atomic<bool> held{false};
    auto f = [&](int64_t, int thread) {
      if (thread == 0)
        while (!held.load()) sleep_ms(1);
      else if (!held.exchange(true))
        while (done.load() < kTasks - 1) sleep_ms(1);
      ++done;
    };
    even ? pool.for_even(kTasks, f) : pool.for_uneven(kTasks, f);
    CHECK_EQ(done.load(), kTasks);
  }
}

TEST_CASE("who waits falls asleep: the caller for the last task, a worker for the next loop") {
  ThreadPool pool(2);
  pid_t caller = gettid();
  std::atomic<pid_t> worker{0};
  pool.for_uneven(2, [&](int64_t, int thread) {
    if (thread == 0) {
      while (worker.load() == 0) sleep_ms(1);
    } else {
      worker = gettid();
      sleep_ms(5);  // lets the caller finish its task, which sleeps too
      wait_until_asleep(caller);
    }
  });
  wait_until_asleep(worker.load());
  CHECK_NE(worker.load(), caller);
}

TEST_CASE("a loop inside of a loop of the same pool is a defect that is reported") {
  ThreadPool pool(2);
  std::atomic<int> refused{0};
  pool.for_uneven(2, [&](int64_t, int) {
    try {
      pool.for_uneven(2, [](int64_t, int) {});
    } catch (const std::exception&) {
      ++refused;
    }
  });
  CHECK_EQ(refused.load(), 2);
}

}  // namespace
}  // namespace mtrain::cpu
