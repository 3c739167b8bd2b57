// How kernels run: the serial team (one core processes a row with vector instructions), loops over
// tasks on the stream's threads, and the dispatch on element types. Every task writes its own
// output, and the order of each sum depends only on the problem's size, never on the number of
// threads. Therefore results have the same bits at any thread count.
#pragma once
#include <algorithm>
#include <limits>

#include "mtrain/base/dtype.h"
#include "mtrain/cpu/cpu_stream.h"
#include "mtrain/cpu/kernels/isa_kernels.h"
#include "mtrain/kernel/team.h"

namespace mtrain::cpu::MT_ISA {

struct SerialTeam {
  static constexpr bool kSerial = true;
  template <class F>
  MT_HD void each(int64_t n, F&& f) const {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) f(i);
  }
  template <class F>
  MT_HD float sum(int64_t n, F&& f) const {
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; ++i) total += f(i);
    return total;
  }
  template <class F>
  MT_HD Pair sum2(int64_t n, F&& f) const {
    float first = 0, second = 0;
#pragma omp simd reduction(+ : first, second)
    for (int64_t i = 0; i < n; ++i) {
      Pair p = f(i);
      first += p.first;
      second += p.second;
    }
    return {first, second};
  }
  /// Several independent maxima: a single chain of comparisons would not vectorise.
  template <class F>
  MT_HD float max(int64_t n, F&& f) const {
    constexpr int64_t kLanes = 32;
    float top = -std::numeric_limits<float>::infinity();
    int64_t i = 0;
    if (n >= kLanes) {
      float lane[kLanes];
      for (int64_t j = 0; j < kLanes; ++j) lane[j] = top;
      for (; i + kLanes <= n; i += kLanes)
        for (int64_t j = 0; j < kLanes; ++j) {
          float v = f(i + j);
          lane[j] = v > lane[j] ? v : lane[j];
        }
      for (int64_t j = 0; j < kLanes; ++j) top = lane[j] > top ? lane[j] : top;
    }
    for (; i < n; ++i) {
      float v = f(i);
      top = v > top ? v : top;
    }
    return top;
  }
  template <class F>
  MT_HD void once(F&& f) const {
    f();
  }
};

/// Calls f(task) for every task in [0, tasks), with an equal share for each thread.
template <class F>
inline void for_tasks(const CpuStream& stream, int64_t tasks, F&& f) {
  stream.pool().for_even(tasks, [&](int64_t task, int) { f(task); });
}

/// Calls f(task, thread) for tasks of different cost: each idle thread takes the next task.
template <class F>
inline void for_uneven_tasks(const CpuStream& stream, int64_t tasks, F&& f) {
  stream.pool().for_uneven(tasks, f);
}

/// Calls f(begin, end) for consecutive blocks of [0, n).
template <class F>
inline void for_blocks(const CpuStream& stream, int64_t n, int64_t block, F&& f) {
  for_tasks(stream, (n + block - 1) / block,
            [&](int64_t i) { f(i * block, std::min(n, (i + 1) * block)); });
}

/// Number of rows of `cols` elements per task: about 16 Ki elements, so that the work outweighs the
/// start of a task.
inline int64_t rows_per_task(int64_t cols) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(cols, 1));
}
constexpr int64_t kElementBlock = 16384;

/// Calls f(T{}) with the C++ type of a floating dtype. Throws for other dtypes.
template <class F>
inline void with_float_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(bf16{});
    case DType::f16:
      return f(f16{});
    default:
      throw_no_kernel(dtype);
  }
}

}  // namespace mtrain::cpu::MT_ISA
