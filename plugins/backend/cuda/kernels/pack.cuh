// Packs: up to 16 bytes of consecutive elements that one thread loads and stores at once, the
// dispatch on element types, and the loop of element-wise kernels. Stateless.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels.h"
#include "mtrain/base/float16.h"

namespace mtrain::cuda {

template <class T, int N>
struct alignas(N * sizeof(T)) Pack {
  T item[N];
};

template <int N, class T>
__device__ __forceinline__ Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, class T>
__device__ __forceinline__ void store(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// Calls f(T{}) with the C++ type of a floating dtype.
template <class F>
cudaError_t with_float_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(bf16{});
    case DType::f16:
      return f(f16{});
    default:
      return cudaErrorInvalidValue;
  }
}

template <class... P>
bool aligned(size_t bytes, const P*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % bytes == 0) && ...);
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int kElementThreads = 256;

/// F has `template <int N> void at(int64_t i)` for the elements [i, i + N).
template <int N, class F>
__global__ void __launch_bounds__(kElementThreads) each_pack(int64_t count, F f) {
  int64_t packs = count / N, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t p = first; p < packs; p += step) f.template at<N>(p * N);
  for (int64_t i = packs * N + first; i < count; i += step) f.template at<1>(i);
}

/// Runs f over `count` elements; N at a time if `vector` says that all its pointers are aligned for
/// that.
template <int N, class F>
cudaError_t each_element(const Launch& launch, int64_t count, bool vector, const F& f) {
  if (count <= 0) return cudaSuccess;
  int64_t threads = vector ? ceil_div(count, N) : count;
  auto blocks = static_cast<unsigned>(std::min<int64_t>(
      ceil_div(threads, kElementThreads), static_cast<int64_t>(launch.processors) * 16));
  if (vector)
    each_pack<N><<<blocks, kElementThreads, 0, launch.stream>>>(count, f);
  else
    each_pack<1><<<blocks, kElementThreads, 0, launch.stream>>>(count, f);
  return cudaGetLastError();
}

struct Split {
  int64_t quotient, remainder;
};
/// k / n for 0 <= k, 0 < n < 2^32. A 64-bit division is slow, and rarely needed.
__device__ __forceinline__ Split split(int64_t k, int64_t n) {
  if (k <= UINT32_MAX) {
    auto a = static_cast<uint32_t>(k), b = static_cast<uint32_t>(n);
    return {a / b, a % b};
  }
  return {k / n, k % n};
}

/// Number of elements in 16 bytes.
template <class T>
constexpr int kPack = static_cast<int>(16 / sizeof(T));

}  // namespace mtrain::cuda
