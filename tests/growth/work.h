// Work as a number that is the same on every machine, however slow or busy: what the code under
// test does, counted while it runs. Its basic blocks count one each (the compiler calls a counter
// in each of them), memory that is copied, compared, searched or set counts its size in pieces of
// 16 bytes, and so does memory that is allocated, by libraries too.
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

/// Checks that work grows with the size as n or n log n do: four times the size is less than five
/// times the work, where n * n were sixteen. `work(size)` is the work of that size.
template <class Work>
void check_linear(const std::string& what, int64_t size, Work&& work) {
  CAPTURE(what);
  uint64_t small = work(size), large = work(4 * size);
  double times = static_cast<double>(large) / static_cast<double>(small);
  MESSAGE(what, ": work of ", size, " is ", small, ", of four times as much ", times, " times");
  CHECK(small >= static_cast<uint64_t>(size));  // it was counted
  CHECK(large < 5 * small);
}

/// Checks that work ends at a limit, whatever is asked: more of it is about the same work.
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
