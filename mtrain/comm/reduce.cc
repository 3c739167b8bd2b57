// Each loop is compiled for several sets of vector instructions, and the best one of the CPU runs.
// All do the same operations on each element, so the results are bit-identical: there are no
// multiply-adds to fuse, and rounding to bf16 and fp16 uses integers.
#include "mtrain/comm/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "mtrain/base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// A function that is compiled for other instructions than the rest of the program must inline its
// parts.
#define MT_INLINE [[gnu::always_inline]] inline

namespace mtrain {

namespace {

// A block's partial results stay in the L1 cache while the inputs are read.
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
    if constexpr (std::is_integral_v<A>) {  // signed overflow is undefined, but must be the same
                                            // everywhere
      using U = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
    } else {  // of two NaNs the instruction keeps its first operand, and which that is the compiler
              // decides
      A sum = a + b;
      return sum == sum ? sum : std::numeric_limits<A>::quiet_NaN();
    }
  }
};
struct Max {
  template <class A>
  MT_INLINE static A combine(A a, A b) {
    return ((a > b) | (a != a)) ? a : b;  // a NaN in b is kept, since nothing compares greater
  }
};
struct Min {
  template <class A>
  MT_INLINE static A combine(A a, A b) {
    return ((a < b) | (a != a)) ? a : b;
  }
};

template <class T, class A>
MT_INLINE void widen(const T* from, A* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<A>(from[i]);
}
template <class A, class T>
MT_INLINE void narrow(const A* from, T* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = T(from[i]);
}

/// Converts elements to the type of the sum, and back.
struct Portable {
  template <class T, class A>
  MT_INLINE static void widen(const T* from, A* to, int64_t n) {
    mtrain::widen(from, to, n);
  }
  template <class A, class T>
  MT_INLINE static void narrow(const A* from, T* to, int64_t n) {
    mtrain::narrow(from, to, n);
  }
};

#if defined(__x86_64__)
// Without an instruction, the conversion of fp16 needs branches and takes ten times as long. The
// bits are the same; a signaling NaN becomes quiet here instead of in the conversion back.
[[gnu::target("avx2,f16c")]] void widen_halves(const f16* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  widen(from + i, to + i, n - i);
}
[[gnu::target("avx2,f16c")]] void narrow_halves(const float* from, f16* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(to + i),
        _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  narrow(from + i, to + i, n - i);
}

#elif defined(__aarch64__)
// Every 64-bit Arm processor has the instructions.
void widen_halves(const f16* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    vst1q_f32(
        to + i,
        vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(from + i)))));
  widen(from + i, to + i, n - i);
}
void narrow_halves(const float* from, f16* to, int64_t n) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    vst1_u16(reinterpret_cast<uint16_t*>(to + i),
             vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from + i))));
  narrow(from + i, to + i, n - i);
}
#endif

#if defined(__x86_64__) || defined(__aarch64__)
struct Halves : Portable {
  using Portable::narrow;
  using Portable::widen;
  MT_INLINE static void widen(const f16* from, float* to, int64_t n) { widen_halves(from, to, n); }
  MT_INLINE static void narrow(const float* from, f16* to, int64_t n) {
    narrow_halves(from, to, n);
  }
};
#endif

template <class T, class Op, class Convert>
MT_INLINE void reduce_blocks(std::span<const void* const> inputs, std::span<void* const> outputs,
                             int64_t count) {
  using A = typename Accumulator<T>::type;
  constexpr bool kConverts = !std::is_same_v<A, T>;
  alignas(64) A sums[kBlock];
  alignas(64) A wide[kConverts ? kBlock : 1];
  alignas(64) T rounded[kConverts ? kBlock : 1];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    int64_t n = std::min(kBlock, count - begin);
    auto input = [&](size_t r) { return static_cast<const T*>(inputs[r]) + begin; };
    size_t next = 1;
    if constexpr (kConverts) {
      Convert::widen(input(0), sums, n);
    } else if (inputs.size() == 1) {
      std::copy_n(input(0), n, sums);
    } else {
      const T *a = input(0), *b = input(next++);
      for (int64_t i = 0; i < n; ++i) sums[i] = Op::combine(a[i], b[i]);
    }
    for (; next < inputs.size(); ++next) {
      const T* x = input(next);
      if constexpr (kConverts) {
        Convert::widen(x, wide, n);
        for (int64_t i = 0; i < n; ++i) sums[i] = Op::combine(sums[i], wide[i]);
      } else {
        for (int64_t i = 0; i < n; ++i) sums[i] = Op::combine(sums[i], x[i]);
      }
    }
    const void* result = sums;
    if constexpr (kConverts) {
      Convert::narrow(sums, rounded, n);
      result = rounded;
    }
    for (void* out : outputs)
      std::memcpy(static_cast<T*>(out) + begin, result, static_cast<size_t>(n) * sizeof(T));
  }
}

template <class T, class Convert>
MT_INLINE void reduce_type(std::span<const void* const> inputs, std::span<void* const> outputs,
                           int64_t count, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return reduce_blocks<T, Sum, Convert>(inputs, outputs, count);
    case ReduceOp::max:
      return reduce_blocks<T, Max, Convert>(inputs, outputs, count);
    case ReduceOp::min:
      return reduce_blocks<T, Min, Convert>(inputs, outputs, count);
  }
}

using Reduce = void (*)(std::span<const void* const> inputs, std::span<void* const> outputs,
                        int64_t count, ReduceOp op);

template <class T>
void reduce_base(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t count,
                 ReduceOp op) {
  reduce_type<T, Portable>(inputs, outputs, count, op);
}

#if defined(__x86_64__)
template <class T>
[[gnu::target("avx2")]] void reduce_avx2(std::span<const void* const> inputs,
                                         std::span<void* const> outputs, int64_t count,
                                         ReduceOp op) {
  reduce_type<T, Halves>(inputs, outputs, count, op);
}
template <class T>
[[gnu::target("avx2,avx512f,avx512bw,avx512dq,avx512vl")]] void reduce_avx512(
    std::span<const void* const> inputs, std::span<void* const> outputs, int64_t count,
    ReduceOp op) {
  reduce_type<T, Halves>(inputs, outputs, count, op);
}
#elif defined(__aarch64__)
template <class T>
void reduce_neon(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t count,
                 ReduceOp op) {
  reduce_type<T, Halves>(inputs, outputs, count, op);
}
#endif

template <class T>
Reduce reduce_of(ReduceLevel level) {
#if defined(__x86_64__)
  if (level == ReduceLevel::avx512) return reduce_avx512<T>;
  if (level == ReduceLevel::avx2) return reduce_avx2<T>;
#elif defined(__aarch64__)
  if (level == ReduceLevel::neon) return reduce_neon<T>;
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
  // __builtin_cpu_supports("f16c") does not compile with clang 16.
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C)) return ReduceLevel::base;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return ReduceLevel::avx512;
  if (__builtin_cpu_supports("avx2")) return ReduceLevel::avx2;
  return ReduceLevel::base;
#elif defined(__aarch64__)
  return ReduceLevel::neon;
#else
  return ReduceLevel::base;
#endif
}

void reduce_in_order(std::span<const void* const> inputs, std::span<void* const> outputs,
                     int64_t count, DType dtype, ReduceOp op) {
  static const ReduceLevel kLevel = best_reduce_level();
  reduce_in_order_at(kLevel, inputs, outputs, count, dtype, op);
}

void reduce_in_order_at(ReduceLevel level, std::span<const void* const> inputs,
                        std::span<void* const> outputs, int64_t count, DType dtype, ReduceOp op) {
  reduce_of(level, dtype)(inputs, outputs, count, op);
}

}  // namespace mtrain
