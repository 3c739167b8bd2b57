// Each loop is compiled for several sets of vector instructions, of which the CPU's best runs. They do the
// same operations on each element, so the bits are the same: there is nothing to contract, and rounding to
// bf16 and fp16 is integer work.
#include "mtrain/comm/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "mtrain/base/error.h"

// Into a function that is compiled for more than the rest of the program, its parts must be inlined.
#define MT_INLINE [[gnu::always_inline]] inline

namespace mtrain {

namespace {

// A block's partial results stay in the first-level cache while the inputs stream by.
constexpr int64_t kBlock = 2048;

template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<bf16> {
  using type = float;
};
template <>
struct Accumulator<f16> {
  using type = float;
};

// Each is one expression so that loops over it become vector code.
struct Sum {
  template <class A>
  MT_INLINE static A combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) {  // signed overflow is undefined, and must be the same everywhere
      using U = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
    } else {  // of two NaNs the instruction keeps its first operand, and which that is the compiler decides
      A sum = a + b;
      return sum == sum ? sum : std::numeric_limits<A>::quiet_NaN();
    }
  }
};
struct Max {
  template <class A>
  MT_INLINE static A combine(A a, A b) {
    return ((a > b) | (a != a)) ? a : b;  // a NaN in b wins, since nothing is greater
  }
};
struct Min {
  template <class A>
  MT_INLINE static A combine(A a, A b) {
    return ((a < b) | (a != a)) ? a : b;
  }
};

template <class T, class Op>
MT_INLINE void reduce_blocks(std::span<const void* const> inputs, std::span<void* const> outputs,
                             int64_t count) {
  using A = typename Accumulator<T>::type;
  alignas(64) A sums[kBlock];
  alignas(64) T rounded[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    int64_t n = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(inputs[0]) + begin;
    for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<A>(first[i]);
    for (size_t r = 1; r < inputs.size(); ++r) {
      const T* x = static_cast<const T*>(inputs[r]) + begin;
      for (int64_t i = 0; i < n; ++i) sums[i] = Op::combine(sums[i], static_cast<A>(x[i]));
    }
    const void* result = sums;
    if constexpr (!std::is_same_v<A, T>) {
      for (int64_t i = 0; i < n; ++i) rounded[i] = T(sums[i]);
      result = rounded;
    }
    for (void* out : outputs)
      std::memcpy(static_cast<T*>(out) + begin, result, static_cast<size_t>(n) * sizeof(T));
  }
}

template <class T>
MT_INLINE void reduce_type(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t count,
                           ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return reduce_blocks<T, Sum>(inputs, outputs, count);
    case ReduceOp::max:
      return reduce_blocks<T, Max>(inputs, outputs, count);
    case ReduceOp::min:
      return reduce_blocks<T, Min>(inputs, outputs, count);
  }
}

using Reduce = void (*)(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t count,
                        ReduceOp op);

template <class T>
void reduce_base(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t count,
                 ReduceOp op) {
  reduce_type<T>(inputs, outputs, count, op);
}

#if defined(__x86_64__)
template <class T>
[[gnu::target("avx2")]] void reduce_avx2(std::span<const void* const> inputs, std::span<void* const> outputs,
                                         int64_t count, ReduceOp op) {
  reduce_type<T>(inputs, outputs, count, op);
}
template <class T>
[[gnu::target("avx2,avx512f,avx512bw,avx512dq,avx512vl")]] void reduce_avx512(
    std::span<const void* const> inputs, std::span<void* const> outputs, int64_t count, ReduceOp op) {
  reduce_type<T>(inputs, outputs, count, op);
}
#endif

template <class T>
Reduce reduce_of(ReduceLevel level) {
#if defined(__x86_64__)
  if (level == ReduceLevel::avx512) return reduce_avx512<T>;
  if (level == ReduceLevel::avx2) return reduce_avx2<T>;
#endif
  return reduce_base<T>;
}

Reduce reduce_of(ReduceLevel level, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return reduce_of<float>(level);
    case DType::bf16:
      return reduce_of<bf16>(level);
    case DType::f16:
      return reduce_of<f16>(level);
    case DType::f64:
      return reduce_of<double>(level);
    case DType::i64:
      return reduce_of<int64_t>(level);
    case DType::i32:
      return reduce_of<int32_t>(level);
    default:
      MT_CHECK(false, "no reduction of ", name(dtype));
  }
}

}  // namespace

ReduceLevel best_reduce_level() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return ReduceLevel::avx512;
  if (__builtin_cpu_supports("avx2")) return ReduceLevel::avx2;
#endif
  return ReduceLevel::base;
}

void reduce_in_order(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t count,
                     DType dtype, ReduceOp op) {
  static const ReduceLevel kLevel = best_reduce_level();
  reduce_in_order_at(kLevel, inputs, outputs, count, dtype, op);
}

void reduce_in_order_at(ReduceLevel level, std::span<const void* const> inputs,
                        std::span<void* const> outputs, int64_t count, DType dtype, ReduceOp op) {
  reduce_of(level, dtype)(inputs, outputs, count, op);
}

}  // namespace mtrain
