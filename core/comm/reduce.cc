#include "mtrain/comm/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "mtrain/base/error.h"

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
  static A combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) {  // signed overflow is undefined, and must be the same everywhere
      using U = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};
struct Max {
  template <class A>
  static A combine(A a, A b) {
    return (a > b) | (a != a) ? a : b;  // a NaN in b wins, since nothing is greater
  }
};
struct Min {
  template <class A>
  static A combine(A a, A b) {
    return (a < b) | (a != a) ? a : b;
  }
};

template <class T, class Op>
void reduce_blocks(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t count) {
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
void reduce_type(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t count,
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

}  // namespace

void reduce_in_order(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t count,
                     DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::f32:
      return reduce_type<float>(inputs, outputs, count, op);
    case DType::bf16:
      return reduce_type<bf16>(inputs, outputs, count, op);
    case DType::f16:
      return reduce_type<f16>(inputs, outputs, count, op);
    case DType::f64:
      return reduce_type<double>(inputs, outputs, count, op);
    case DType::i64:
      return reduce_type<int64_t>(inputs, outputs, count, op);
    case DType::i32:
      return reduce_type<int32_t>(inputs, outputs, count, op);
    default:
      MT_CHECK(false, "no reduction of ", name(dtype));
  }
}

}  // namespace mtrain
