// Sums over rows, per column, in a fixed order. The number of rows alone fixes the division into
// blocks of rows; each thread sums its own columns of one block from the first row to the last, and
// a second kernel adds the blocks in order. No atomics.
#pragma once
#include <algorithm>

#include "pack.cuh"

namespace mtrain::cuda {

constexpr int kColumnThreads = 128;

inline int64_t row_blocks(int64_t rows) { return std::clamp<int64_t>(ceil_div(rows, 32), 1, 256); }

/// F has `static constexpr int kSums` and `template <int N> void add(int64_t row, int64_t col,
/// float (&sums)[kSums][N])`. partial: [blocks, kSums, cols].
template <int N, class F>
__global__ void __launch_bounds__(kColumnThreads)
    column_partials(int64_t rows, int64_t cols, int64_t per_block, F f, float* partial) {
  int64_t col = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (col >= cols) return;
  float sums[F::kSums][N] = {};
  int64_t begin = blockIdx.y * per_block, end = min(rows, begin + per_block);
#pragma unroll 4
  for (int64_t r = begin; r < end; ++r) f.template add<N>(r, col, sums);
  for (int s = 0; s < F::kSums; ++s)
#pragma unroll
    for (int j = 0; j < N; ++j)
      partial[(static_cast<int64_t>(blockIdx.y) * F::kSums + s) * cols + col + j] = sums[s][j];
}

/// out[c] (+)= the sum of all blocks' partial sums.
static __global__ void __launch_bounds__(256)
    column_totals(int64_t cols, int64_t blocks, int64_t stride, const float* partial, float* out,
                  bool accumulate) {
  int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  float total = accumulate ? out[c] : 0.0f;
#pragma unroll 16
  for (int64_t b = 0; b < blocks; ++b) total += partial[b * stride + c];
  out[c] = total;
}

struct ColumnResult {
  float* out;  // null: not needed
  bool accumulate;
};

/// `vector`: all rows start at multiples of 16 bytes. x [rows, cols], results [cols].
template <class T, class F>
cudaError_t column_sums(const Launch& launch, int64_t rows, int64_t cols, bool vector, const F& f,
                        const ColumnResult (&results)[F::kSums]) {
  if (cols <= 0) return cudaSuccess;
  int64_t blocks = row_blocks(rows), per_block = ceil_div(std::max<int64_t>(rows, 1), blocks);
  auto partial = static_cast<float*>(
      launch.scratch(sizeof(float) * static_cast<size_t>(blocks * F::kSums * cols)));
  if (!partial) return cudaErrorMemoryAllocation;
  constexpr int kN = kPack<T>;
  int64_t columns = vector ? ceil_div(cols, kN) : cols;
  dim3 grid(static_cast<unsigned>(ceil_div(columns, kColumnThreads)),
            static_cast<unsigned>(blocks));
  if (vector)
    column_partials<kN>
        <<<grid, kColumnThreads, 0, launch.stream>>>(rows, cols, per_block, f, partial);
  else
    column_partials<1>
        <<<grid, kColumnThreads, 0, launch.stream>>>(rows, cols, per_block, f, partial);
  for (int s = 0; s < F::kSums; ++s)
    if (results[s].out)
      column_totals<<<static_cast<unsigned>(ceil_div(cols, 256)), 256, 0, launch.stream>>>(
          cols, blocks, F::kSums * cols, partial + s * cols, results[s].out, results[s].accumulate);
  return cudaGetLastError();
}

}  // namespace mtrain::cuda
