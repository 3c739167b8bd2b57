// Weighted sums of gathered rows, and the gradients of the weights.
#include "mtrain/kernel/gather_sum.h"
#include "rows.cuh"

namespace mtrain::cuda {

namespace {

constexpr int kThreads = 128;

template <class T, int N>
__global__ void __launch_bounds__(kThreads) sums_of_rows(GatherSumArgs a) {
  int64_t row = blockIdx.x, i = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  if (i >= a.cols) return;
  const int32_t* source = a.source + row * a.fan;
  float sums[N] = {};
  if (a.addend) {
    auto pack = load<N>(static_cast<const T*>(a.addend) + row * a.cols + i);
#pragma unroll
    for (int j = 0; j < N; ++j) sums[j] = to_float(pack.item[j]);
  }
  for (int64_t k = 0; k < a.fan; ++k) {
    if (source[k] < 0) continue;
    int64_t term = row * a.fan + k;
    float w = a.weights ? a.weights[a.weight_of ? a.weight_of[term] : term] : 1.0f;
    auto pack = load<N>(static_cast<const T*>(a.x) + source[k] * a.cols + i);
#pragma unroll
    for (int j = 0; j < N; ++j) sums[j] += w * to_float(pack.item[j]);
  }
  Pack<T, N> out;
#pragma unroll
  for (int j = 0; j < N; ++j) out.item[j] = T(sums[j]);
  store(static_cast<T*>(a.y) + row * a.cols + i, out);
}

template <class T>
__global__ void __launch_bounds__(kWarp* kWarpsPerBlock) dots(RowDotsArgs a) {
  WarpTeam team{static_cast<int>(threadIdx.x % kWarp)};
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarp;
       row < a.rows; row += static_cast<int64_t>(gridDim.x) * kWarpsPerBlock) {
    float dot = row_dots_row(team, static_cast<const T*>(a.a) + row / a.group * a.cols,
                             static_cast<const T*>(a.b), a.source + row * a.fan, a.fan, a.cols);
    team.once([&] { a.out[row] = dot; });
  }
}

}  // namespace

cudaError_t gather_sum(const Launch& launch, const GatherSumArgs& a) {
  if (a.rows <= 0 || a.cols <= 0) return cudaSuccess;
  return with_float_type(a.dtype, [&]<class T>(T) {
    bool vector = whole_packs<T>(a.cols) && aligned(16, a.x, a.addend, a.y);
    int64_t columns = vector ? a.cols / kPack<T> : a.cols;
    dim3 grid(static_cast<unsigned>(a.rows), static_cast<unsigned>(ceil_div(columns, kThreads)));
    if (vector)
      sums_of_rows<T, kPack<T>><<<grid, kThreads, 0, launch.stream>>>(a);
    else
      sums_of_rows<T, 1><<<grid, kThreads, 0, launch.stream>>>(a);
    return cudaGetLastError();
  });
}

cudaError_t row_dots(const Launch& launch, const RowDotsArgs& a) {
  if (a.rows <= 0) return cudaSuccess;
  auto blocks = static_cast<unsigned>(
      std::min<int64_t>(ceil_div(a.rows, kWarpsPerBlock), int64_t{launch.processors} * 32));
  return with_float_type(a.dtype, [&]<class T>(T) {
    dots<T><<<blocks, kWarp * kWarpsPerBlock, 0, launch.stream>>>(a);
    return cudaGetLastError();
  });
}

}  // namespace mtrain::cuda
