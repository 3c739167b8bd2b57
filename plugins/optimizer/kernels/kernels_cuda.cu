// The kernels for CUDA. The order of each sum depends only on the number of elements.
#include <cuda_runtime.h>

#include <algorithm>

#include "formulas.h"

namespace mtrain::optimizer_kernels {
namespace {

constexpr int kThreads = 256, kMaxBlocks = 2048;

template <class T, int N>
struct alignas(N * sizeof(T)) Pack {
  T item[N];
};

/// N consecutive elements of an update, in registers: an update of element i of arrays in memory
/// becomes one of element j of these.
template <int N, class V>
__device__ void update(const SgdArgs& a, V* value, int64_t i) {
  using Floats = Pack<float, N>;
  Floats p = *reinterpret_cast<const Floats*>(a.param + i), m{};
  const Floats g = *reinterpret_cast<const Floats*>(a.grad + i);
  if (a.momentum) m = *reinterpret_cast<const Floats*>(a.momentum + i);
  SgdArgs own = a;
  own.param = p.item, own.grad = g.item, own.momentum = a.momentum ? m.item : nullptr;
  Pack<V, N> out;
#pragma unroll
  for (int j = 0; j < N; ++j) out.item[j] = V(apply(own, j));
  *reinterpret_cast<Floats*>(a.param + i) = p;
  if (a.momentum) *reinterpret_cast<Floats*>(a.momentum + i) = m;
  if (value) *reinterpret_cast<Pack<V, N>*>(value + i) = out;
}

template <int N, class V>
__device__ void update(const LionArgs& a, V* value, int64_t i) {
  using Floats = Pack<float, N>;
  Floats p = *reinterpret_cast<const Floats*>(a.param + i);
  Floats m = *reinterpret_cast<const Floats*>(a.momentum + i);
  const Floats g = *reinterpret_cast<const Floats*>(a.grad + i);
  LionArgs own = a;
  own.param = p.item, own.grad = g.item, own.momentum = m.item;
  Pack<V, N> out;
#pragma unroll
  for (int j = 0; j < N; ++j) out.item[j] = V(apply(own, j));
  *reinterpret_cast<Floats*>(a.param + i) = p;
  *reinterpret_cast<Floats*>(a.momentum + i) = m;
  if (value) *reinterpret_cast<Pack<V, N>*>(value + i) = out;
}

template <int N, class V, class Args>
__global__ void __launch_bounds__(kThreads) each_kernel(const __grid_constant__ Args args) {
  V* const value = static_cast<V*>(args.value);
  const int64_t step = int64_t{gridDim.x} * kThreads, packs = args.count / N,
                first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int64_t k = first; k < packs; k += step) update<N>(args, value, k * N);
  for (int64_t i = packs * N + first; i < args.count; i += step) update<1>(args, value, i);
}

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>(
      std::clamp<int64_t>((threads + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

template <class... P>
bool aligned(const P*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

const char* launched() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

/// Calls f with the C++ type of a compute copy; float if there is none.
template <class F>
void with_value_type(const void* value, DType dtype, F&& f) {
  if (value && dtype == DType::bf16) return f(bf16{});
  if (value && dtype == DType::f16) return f(f16{});
  f(float{});
}

template <class Args>
const char* each(void* queue, const Args& args) {
  if (args.count <= 0) return nullptr;
  auto* const stream = static_cast<cudaStream_t>(queue);
  const bool vector = aligned(args.param, args.grad, args.momentum, args.value);
  with_value_type(args.value, args.value_dtype, [&]<class V>(V) {
    if (vector)
      each_kernel<4, V><<<blocks_for((args.count + 3) / 4), kThreads, 0, stream>>>(args);
    else
      each_kernel<1, V><<<blocks_for(args.count), kThreads, 0, stream>>>(args);
  });
  return launched();
}

/// Calls f(i, at) for every element i of a matrix, which is `at` in the parameter.
template <class F>
__device__ void each_of(const Pieces& p, const F& f) {
  const int64_t count = p.piece * p.pieces, step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const int64_t piece = p.pieces == 1 ? 0 : i / p.piece;
    f(i, piece * p.stride + (i - piece * p.piece));
  }
}

template <class X>
__global__ void __launch_bounds__(kThreads) direction_kernel(DirectionArgs args) {
  X* const x = static_cast<X*>(args.x);
  each_of(args.pieces, [&](int64_t i, int64_t at) { x[i] = X(direction(args, at)); });
}

const char* find_direction(void* queue, const DirectionArgs& args) {
  const unsigned blocks = blocks_for(args.pieces.piece * args.pieces.pieces);
  auto* const stream = static_cast<cudaStream_t>(queue);
  if (args.x_dtype == DType::bf16)
    direction_kernel<bf16><<<blocks, kThreads, 0, stream>>>(args);
  else
    direction_kernel<float><<<blocks, kThreads, 0, stream>>>(args);
  return launched();
}

/// The sum of one value of each thread of a block, on its thread 0.
__device__ float block_sum(float value) {
  __shared__ float sums[kThreads];
  sums[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  return sums[0];
}

template <class X>
__global__ void __launch_bounds__(kThreads) squares_kernel(NormalizeArgs args) {
  const X* const x = static_cast<const X*>(args.x);
  float part = 0;
  constexpr int64_t kStep = int64_t{kPartials} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < args.count; i += kStep) {
    const float v = float(x[i]);
    part += v * v;
  }
  const float sum = block_sum(part);
  if (threadIdx.x == 0) args.partials[blockIdx.x] = sum;
}

static_assert(kPartials == 2 * kThreads, "each thread reads two partial sums");

template <class X>
__global__ void __launch_bounds__(kThreads) divide_kernel(NormalizeArgs args) {
  __shared__ float factor;
  const float sum = block_sum(args.partials[threadIdx.x] + args.partials[threadIdx.x + kThreads]);
  if (threadIdx.x == 0) factor = 1 / fmaxf(sqrtf(sum), args.eps);
  __syncthreads();
  X* const x = static_cast<X*>(args.x);
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < args.count; i += step)
    x[i] = X(factor * float(x[i]));
}

template <class X>
void queue_normalize(cudaStream_t stream, const NormalizeArgs& args) {
  squares_kernel<X><<<kPartials, kThreads, 0, stream>>>(args);
  divide_kernel<X><<<blocks_for(args.count), kThreads, 0, stream>>>(args);
}

const char* normalize(void* queue, const NormalizeArgs& args) {
  auto* const stream = static_cast<cudaStream_t>(queue);
  if (args.x_dtype == DType::bf16)
    queue_normalize<bf16>(stream, args);
  else
    queue_normalize<float>(stream, args);
  return launched();
}

template <class X, class V>
__global__ void __launch_bounds__(kThreads) step_kernel(StepArgs args) {
  const X* const x = static_cast<const X*>(args.x);
  V* const value = static_cast<V*>(args.value);
  each_of(args.pieces, [&](int64_t i, int64_t at) {
    const float p = stepped(args, at, float(x[i]));
    if (value) value[at] = V(p);
  });
}

const char* step(void* queue, const StepArgs& args) {
  const unsigned blocks = blocks_for(args.pieces.piece * args.pieces.pieces);
  auto* const stream = static_cast<cudaStream_t>(queue);
  with_value_type(args.value, args.value_dtype, [&]<class V>(V) {
    if (args.x_dtype == DType::bf16)
      step_kernel<bf16, V><<<blocks, kThreads, 0, stream>>>(args);
    else
      step_kernel<float, V><<<blocks, kThreads, 0, stream>>>(args);
  });
  return launched();
}

constexpr Kernels kTable = {each<SgdArgs>, each<LionArgs>, find_direction, normalize, step};

}  // namespace

const Kernels* const kCudaKernels = &kTable;

}  // namespace mtrain::optimizer_kernels
