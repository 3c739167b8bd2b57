// Kernels that work row by row: a row is loaded into shared memory with 16-byte loads, the row
// function of mtrain/kernel processes it there in place, and the result is written with 16-byte
// stores. Short rows use one warp each, long ones a block. Rows that do not fit into shared memory,
// or are not aligned, are processed in device memory. Stateless.
#pragma once
#include <algorithm>

#include "pack.cuh"
#include "teams.cuh"

namespace mtrain::cuda {

constexpr int64_t kWarpCols = 1024;  // up to this number of columns, one warp per row
constexpr int kWarpsPerBlock = 4;
constexpr size_t kStagedBytes =
    47 * 1024;  // shared memory available without opt-in, less the teams' own

template <class T>
__device__ void copy_row(const T* from, T* to, int64_t n, int lane, int lanes) {
  constexpr int kN = kPack<T>;
  for (int64_t p = lane; p < n / kN; p += lanes) store(to + p * kN, load<kN>(from + p * kN));
}

/// Work has `static constexpr int kInputs`, `const T* in(int which, int64_t row)`, `T* out(int64_t
/// row)` (null: no row result), and `run(team, row, const T* const in[kInputs], T* out)`; a staged
/// `out` is the memory of input kResult.
template <bool kStaged, class T, class Work>
__global__ void __launch_bounds__(kWarp* kWarpsPerBlock)
    warp_rows(int64_t rows, int64_t cols, Work work) {
  extern __shared__ uint4 shared[];
  int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  WarpTeam team{lane};
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + warp; row < rows;
       row += static_cast<int64_t>(gridDim.x) * kWarpsPerBlock) {
    const T* in[Work::kInputs];
    T* mine = reinterpret_cast<T*>(shared) + static_cast<int64_t>(warp) * Work::kInputs * cols;
    for (int k = 0; k < Work::kInputs; ++k) {
      in[k] = work.in(k, row);
      if constexpr (kStaged) {
        copy_row(in[k], mine + k * cols, cols, lane, kWarp);
        in[k] = mine + k * cols;
      }
    }
    __syncwarp();
    T* out = work.out(row);
    work.run(team, row, in, kStaged ? mine + Work::kResult * cols : out);
    __syncwarp();
    if constexpr (kStaged)
      if (out) copy_row(mine + Work::kResult * cols, out, cols, lane, kWarp);
    __syncwarp();
  }
}

template <bool kStaged, class T, class Work>
__global__ void __launch_bounds__(512) block_rows(int64_t rows, int64_t cols, Work work) {
  extern __shared__ uint4 shared[];
  __shared__ Pair warps[kWarp + 1];
  BlockTeam team{warps};
  int lane = static_cast<int>(threadIdx.x), lanes = static_cast<int>(blockDim.x);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* in[Work::kInputs];
    T* mine = reinterpret_cast<T*>(shared);
    for (int k = 0; k < Work::kInputs; ++k) {
      in[k] = work.in(k, row);
      if constexpr (kStaged) {
        copy_row(in[k], mine + k * cols, cols, lane, lanes);
        in[k] = mine + k * cols;
      }
    }
    __syncthreads();
    T* out = work.out(row);
    work.run(team, row, in, kStaged ? mine + Work::kResult * cols : out);
    __syncthreads();
    if constexpr (kStaged)
      if (out) copy_row(mine + Work::kResult * cols, out, cols, lane, lanes);
    __syncthreads();
  }
}

/// `vector`: all rows start at multiples of 16 bytes.
template <class T, class Work>
cudaError_t each_row(const Launch& launch, int64_t rows, int64_t cols, bool vector,
                     const Work& work) {
  if (rows <= 0 || cols <= 0) return cudaSuccess;
  size_t row_bytes = static_cast<size_t>(cols) * sizeof(T) * Work::kInputs;
  bool short_rows = cols <= kWarpCols;
  size_t bytes = row_bytes * (short_rows ? kWarpsPerBlock : 1);
  bool staged = vector && bytes <= kStagedBytes;
  if (!staged) bytes = 0;
  if (short_rows) {
    auto blocks = static_cast<unsigned>(
        std::min<int64_t>(ceil_div(rows, kWarpsPerBlock), int64_t{launch.processors} * 32));
    if (staged)
      warp_rows<true, T>
          <<<blocks, kWarp * kWarpsPerBlock, bytes, launch.stream>>>(rows, cols, work);
    else
      warp_rows<false, T><<<blocks, kWarp * kWarpsPerBlock, 0, launch.stream>>>(rows, cols, work);
  } else {
    auto threads =
        static_cast<unsigned>(std::clamp<int64_t>(ceil_div(cols, 16) / kWarp * kWarp, 128, 512));
    auto blocks = static_cast<unsigned>(std::min<int64_t>(rows, int64_t{launch.processors} * 16));
    if (staged)
      block_rows<true, T><<<blocks, threads, bytes, launch.stream>>>(rows, cols, work);
    else
      block_rows<false, T><<<blocks, threads, 0, launch.stream>>>(rows, cols, work);
  }
  return cudaGetLastError();
}

template <class T>
bool whole_packs(int64_t cols) {
  return cols % kPack<T> == 0;
}

}  // namespace mtrain::cuda
