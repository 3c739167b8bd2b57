// Values of weights that are stored as codes: packs of elements in any order. The 16 values of nf4
// are in shared memory, where the lanes of a warp read different ones at once.
#include "pack.cuh"

namespace mtrain::cuda {
namespace {

__constant__ const Nf4Values kNf4 = kNf4Values;
__constant__ const ScaleCodeValues kScaleValues = kScaleCodeValues;

template <WeightFormat kFormat>
__device__ float scale_of(const DecodeWeightArgs& a, int64_t row, int64_t col) {
  if constexpr (kFormat != WeightFormat::nf4) {
    return a.scales[row];
  } else {
    const int64_t block = col / kNf4Block, at = row * (a.cols / kNf4Block) + block;
    if (a.scales) return a.scales[at];
    const float* group = a.groups + 2 * ((a.first_block[row] + block) / kScaleGroup);
    return decoded_scale(kScaleValues, a.scale_codes[at], group[0], group[1]);
  }
}

/// Elements [i, i + N), which are in one row and in one block, since N divides their lengths.
template <int N, WeightFormat kFormat, class T>
__device__ void decode_pack(const DecodeWeightArgs& a, int64_t i, const float* nf4) {
  constexpr bool kHalves = kFormat == WeightFormat::nf4;
  const Split place = split(i, a.cols);
  const float scale = scale_of<kFormat>(a, place.quotient, place.remainder);
  const auto codes = load < kHalves ? N / 2 : N > (a.codes + (kHalves ? i / 2 : i));
  Pack<T, N> out;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    float value;
    if constexpr (kFormat == WeightFormat::nf4)
      value = nf4[k % 2 == 0 ? codes.item[k / 2] >> 4 : codes.item[k / 2] & 15] * scale;
    else if constexpr (kFormat == WeightFormat::int8)
      value = int8_value(codes.item[k], scale);
    else
      value = fp8_value(codes.item[k], scale);
    out.item[k] = T(value);
  }
  store(static_cast<T*>(a.w) + i, out);
}

template <int N, WeightFormat kFormat, class T>
__global__ void __launch_bounds__(kElementThreads) decode_packs(DecodeWeightArgs a) {
  __shared__ float nf4[16];
  if (threadIdx.x < 16) nf4[threadIdx.x] = kNf4.of[threadIdx.x];
  __syncthreads();
  const int64_t packs = a.rows * a.cols / N, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t p = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; p < packs;
       p += step)
    decode_pack<N, kFormat, T>(a, p * N, nf4);
}

template <class T, WeightFormat kFormat>
cudaError_t decode(const Launch& launch, const DecodeWeightArgs& a) {
  constexpr int kN = kPack<T>;
  const int64_t count = a.rows * a.cols;
  if (count == 0) return cudaSuccess;
  const bool vector = a.cols % kN == 0 && aligned(16, a.codes, a.w);
  if (!vector && kFormat == WeightFormat::nf4) return cudaErrorInvalidValue;
  const int64_t threads = vector ? count / kN : count;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(
      ceil_div(threads, kElementThreads), static_cast<int64_t>(launch.processors) * 16));
  if (vector)
    decode_packs<kN, kFormat, T><<<blocks, kElementThreads, 0, launch.stream>>>(a);
  else if constexpr (kFormat != WeightFormat::nf4)
    decode_packs<1, kFormat, T><<<blocks, kElementThreads, 0, launch.stream>>>(a);
  return cudaGetLastError();
}

}  // namespace

cudaError_t decode_weight(const Launch& launch, const DecodeWeightArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    switch (a.format) {
      case WeightFormat::nf4:
        return decode<T, WeightFormat::nf4>(launch, a);
      case WeightFormat::int8:
        return decode<T, WeightFormat::int8>(launch, a);
      case WeightFormat::fp8:
        return decode<T, WeightFormat::fp8>(launch, a);
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace mtrain::cuda
