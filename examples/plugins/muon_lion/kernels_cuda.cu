#include <cuda_runtime.h>

#include <algorithm>

#include "formulas.h"

namespace muon_lion {
namespace {

constexpr int kThreads = 256;

template <class Args>
__global__ void each_kernel(Args args) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < args.count; i += stride)
    apply(args, i);
}

/// The sum of one value of each thread of a block, on its thread 0. The order is fixed.
__device__ float block_sum(float value) {
  __shared__ float sums[kThreads];
  sums[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  return sums[0];
}

__global__ void squares_kernel(NormalizeArgs a) {
  float part = 0;
  const int64_t stride = int64_t{kPartials} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.count; i += stride)
    part += a.x[i] * a.x[i];
  const float sum = block_sum(part);
  if (threadIdx.x == 0) a.partials[blockIdx.x] = sum;
}

static_assert(kPartials == kThreads, "each block reads one partial sum for each of its threads");

__global__ void divide_kernel(NormalizeArgs a) {
  __shared__ float factor;
  const float sum = block_sum(a.partials[threadIdx.x]);
  if (threadIdx.x == 0) factor = 1 / (sqrtf(sum) + a.eps);
  __syncthreads();
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.count; i += stride)
    a.x[i] *= factor;
}

unsigned blocks_for(int64_t count) {
  return static_cast<unsigned>(std::clamp<int64_t>((count + kThreads - 1) / kThreads, 1, 4096));
}

const char* launched() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

template <class Args>
const char* each(void* queue, const Args& args) {
  each_kernel<<<blocks_for(args.count), kThreads, 0, static_cast<cudaStream_t>(queue)>>>(args);
  return launched();
}

const char* normalize(void* queue, const NormalizeArgs& args) {
  auto stream = static_cast<cudaStream_t>(queue);
  squares_kernel<<<kPartials, kThreads, 0, stream>>>(args);
  divide_kernel<<<blocks_for(args.count), kThreads, 0, stream>>>(args);
  return launched();
}

constexpr Kernels kTable = {each<MomentumArgs>, normalize, each<StepArgs>, each<LionArgs>};

}  // namespace

const Kernels* const kCudaKernels = &kTable;

}  // namespace muon_lion
