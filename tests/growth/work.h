// Counts the work of the code under test, independent of the speed of the machine: one per basic
// block (the compiler calls a counter in each of them), and one per 16 bytes that are copied,
// compared, searched, set or allocated, by libraries too.
#pragma once
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>

namespace mtrain::testing {

/// The work of this thread so far.
uint64_t work_done();

template <class Task>
uint64_t work_of(Task&& task) {
  uint64_t before = work_done();
  std::forward<Task>(task)();
  return work_done() - before;
}

/// Checks that work grows like n or n log n: four times the size takes less than five times the
/// work (n * n would take sixteen). `work(size)` is the work of that size.
template <class Work>
void check_linear(const std::string& what, int64_t size, Work&& work) {
  CAPTURE(what);
  uint64_t small = work(size), large = work(4 * size);
  double times = static_cast<double>(large) / static_cast<double>(small);
  MESSAGE(what, ": work of ", size, " is ", small, ", of four times as much ", times, " times");
  CHECK(small >= static_cast<uint64_t>(size));  // it was counted
  CHECK(large < 5 * small);
}

/// Checks that work is bounded: a larger size takes about the same work.
template <class Work>
void check_bounded(const std::string& what, int64_t size, int64_t more, Work&& work) {
  CAPTURE(what);
  uint64_t small = work(size), large = work(more);
  double times = static_cast<double>(large) / static_cast<double>(small);
  MESSAGE(what, ": work of ", size, " is ", small, ", of ", more, " ", times, " times");
  CHECK(small >= 1000);
  CHECK(large < 2 * small);
}

}  // namespace mtrain::testing
