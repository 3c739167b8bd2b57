// Quantization of matrices to low-precision types, and back. Bit-identical to the CPU.
#include "mtrain/kernel/quantize_patch.h"
#include "pack.cuh"
#include "quantize_tensor.cuh"
#include "teams.cuh"

namespace mtrain::cuda {

namespace {

template <class T>
struct Magnitudes {
  const T* x;
  unsigned* top;
  template <int N>
  __device__ unsigned at(int64_t i) const {
    auto v = load<N>(x + i);
    unsigned most = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) most = max(most, magnitude_bits(to_float(v.item[j])));
    return most;
  }
};

/// A maximum does not depend on the order, so the last step may be atomic.
template <int N, class T>
__global__ void __launch_bounds__(kElementThreads) largest(int64_t count, Magnitudes<T> f) {
  int64_t packs = count / N, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  unsigned most = 0;
  for (int64_t p = first; p < packs; p += step) most = max(most, f.template at<N>(p * N));
  for (int64_t i = packs * N + first; i < count; i += step) most = max(most, f.template at<1>(i));
  most = __reduce_max_sync(kAll, most);
  if (threadIdx.x % kWarp == 0) atomicMax(f.top, most);
}

constexpr int kPatchThreads = 256;

template <class Format, class T>
__global__ void __launch_bounds__(kPatchThreads)
    patches(const __grid_constant__ QuantizeArgs a, const __grid_constant__ QuantLayout layout) {
  extern __shared__ uint4 shared[];
  __shared__ Pair unused[kWarp + 1];
  QuantScaling all = whole_scaling<Format>(a);
  if (a.factor && blockIdx.x == 0 && threadIdx.x == 0) *a.factor = all.decode;
  int64_t across = (a.cols + kPatch - 1) / kPatch, patch = blockIdx.x;
  auto& memory = *reinterpret_cast<PatchMemory<T>*>(shared);
  QuantizePatch<Format, T, BlockTeam, QuantizeArgs>{
      BlockTeam{unused}, a, layout, all, patch / across * kPatch, patch % across * kPatch, memory}
      .run();
}

template <class Format, class T>
cudaError_t launch_patches(const Launch& launch, const QuantizeArgs& a) {
  constexpr int kBytes = sizeof(PatchMemory<T>);
  auto kernel = patches<Format, T>;
  if (cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes))
    return status;
  int64_t blocks = ceil_div(a.rows, kPatch) * ceil_div(a.cols, kPatch);
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  kernel<<<static_cast<unsigned>(blocks), kPatchThreads, kBytes, launch.stream>>>(a, layout_of(a));
  return cudaGetLastError();
}

template <class T>
__global__ void __launch_bounds__(kElementThreads) hadamards(HadamardArgs a) {
  int64_t bands = (a.rows + 15) / 16, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  auto x = static_cast<const T*>(a.x);
  auto y = static_cast<T*>(a.y);
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < bands * a.cols;
       i += step) {
    Split at = split(i, a.cols);
    int64_t row = at.quotient * 16, col = at.remainder;
    float v[16];
#pragma unroll
    for (int r = 0; r < 16; ++r) {
      float sign = a.signs >> r & 1 ? -0.25f : 0.25f;
      v[r] = row + r < a.rows ? sign * to_float(x[(row + r) * a.cols + col]) : 0.0f;
    }
    hadamard16(v);
#pragma unroll
    for (int r = 0; r < 16; ++r) y[(row + r) * a.cols + col] = T(v[r]);
  }
}

__global__ void __launch_bounds__(kElementThreads)
    values_of(QuantLayout layout, const uint8_t* codes, const void* scales, bf16* values) {
  int64_t width = layout.padded_k(), step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < layout.lines * width; i += step) {
    Split at = split(i, width);
    values[i] = bf16(quantized_value(layout, codes, scales, at.quotient, at.remainder));
  }
}

__global__ void join_scales(float alpha, const float* a, const float* b, float beta, float* out) {
  out[0] = alpha * ((a ? *a : 1.0f) * (b ? *b : 1.0f));
  out[1] = beta;
}

unsigned element_blocks(const Launch& launch, int64_t count) {
  return static_cast<unsigned>(std::min<int64_t>(ceil_div(count, kElementThreads),
                                                 static_cast<int64_t>(launch.processors) * 16));
}

}  // namespace

cudaError_t amax(const Launch& launch, const AmaxArgs& a) {
  if (!a.accumulate)
    if (cudaError_t status = cudaMemsetAsync(a.amax, 0, sizeof(float), launch.stream))
      return status;
  if (a.count <= 0) return cudaSuccess;
  return with_float_type(a.dtype, [&]<class T>(T) {
    Magnitudes<T> f{static_cast<const T*>(a.x), reinterpret_cast<unsigned*>(a.amax)};
    if (aligned(16, a.x))
      largest<kPack<T>, T><<<element_blocks(launch, ceil_div(a.count, kPack<T>)), kElementThreads,
                             0, launch.stream>>>(a.count, f);
    else
      largest<1, T>
          <<<element_blocks(launch, a.count), kElementThreads, 0, launch.stream>>>(a.count, f);
    return cudaGetLastError();
  });
}

cudaError_t quantize(const Launch& launch, const QuantizeArgs& a) {
  if (a.rows <= 0 || a.cols <= 0) return cudaSuccess;
  if (takes_tensor_codes(a)) return tensor_codes(launch, a);
  if (!patch_takes(a.scale, a.tile_rows, a.tile_cols)) return cudaErrorInvalidValue;
  if (a.dtype == DType::u8) {  // x holds codes already
    if (a.scale != QuantScale::tensor || a.factor) return cudaErrorInvalidValue;
    if (a.format == QuantFormat::e4m3) return launch_patches<E4M3, uint8_t>(launch, a);
    return a.format == QuantFormat::e5m2 ? launch_patches<E5M2, uint8_t>(launch, a)
                                         : cudaErrorInvalidValue;
  }
  return with_float_type(a.dtype, [&]<class T>(T) {
    switch (a.format) {
      case QuantFormat::e4m3:
        return launch_patches<E4M3, T>(launch, a);
      case QuantFormat::e5m2:
        return launch_patches<E5M2, T>(launch, a);
      default:
        return launch_patches<E2M1, T>(launch, a);
    }
  });
}

cudaError_t hadamard(const Launch& launch, const HadamardArgs& a) {
  if (a.rows <= 0 || a.cols <= 0) return cudaSuccess;
  return with_float_type(a.dtype, [&]<class T>(T) {
    hadamards<T><<<element_blocks(launch, ceil_div(a.rows, 16) * a.cols), kElementThreads, 0,
                   launch.stream>>>(a);
    return cudaGetLastError();
  });
}

cudaError_t quantized_values(const Launch& launch, const QuantLayout& layout, const void* codes,
                             const void* scales, bf16* values) {
  int64_t count = layout.lines * layout.padded_k();
  if (count <= 0) return cudaSuccess;
  values_of<<<element_blocks(launch, count), kElementThreads, 0, launch.stream>>>(
      layout, static_cast<const uint8_t*>(codes), scales, values);
  return cudaGetLastError();
}

cudaError_t joined_scales(const Launch& launch, const GemmArgs& g, float beta, float* out) {
  join_scales<<<1, 1, 0, launch.stream>>>(g.alpha, g.scale_a, g.scale_b, beta, out);
  return cudaGetLastError();
}

}  // namespace mtrain::cuda
