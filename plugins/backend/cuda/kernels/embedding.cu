// Embedding: gathers rows of a table, and adds their gradients in the order of tokens without
// atomics. Token indices are sorted by row (stable), and the block of a row's first token adds the
// row's tokens one after the other. Bit-identical to the CPU.
#include <cub/device/device_radix_sort.cuh>

#include "pack.cuh"

namespace mtrain::cuda {

namespace {

constexpr int kThreads = 128;

template <class T, int N>
__global__ void __launch_bounds__(kThreads) gather(EmbeddingArgs a) {
  for (int64_t t = blockIdx.x; t < a.tokens; t += gridDim.x) {
    int64_t row = a.ids[t] - a.first_row;
    bool mine = row >= 0 && row < a.rows;
    const T* from = static_cast<const T*>(a.table) + row * a.cols;
    T* to = static_cast<T*>(a.y) + t * a.cols;
    for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < a.cols;
         i += static_cast<int64_t>(blockDim.x) * N) {
      Pack<T, N> pack;
      if (mine) {
        pack = load<N>(from + i);
      } else {
#pragma unroll
        for (int j = 0; j < N; ++j) pack.item[j] = T(0.0f);
      }
      store(to + i, pack);
    }
  }
}

/// The key of a token is its row, or `rows` if it has no row here.
__global__ void __launch_bounds__(256)
    rows_of(EmbeddingBackwardArgs a, int32_t* keys, int32_t* tokens) {
  for (int64_t t = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; t < a.tokens;
       t += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    int64_t row = a.ids[t] - a.first_row;
    keys[t] = static_cast<int32_t>(row >= 0 && row < a.rows ? row : a.rows);
    tokens[t] = static_cast<int32_t>(t);
  }
}

/// The first place from `first` on whose key is not `row`, in sorted keys.
__device__ int64_t end_of_row(const int32_t* __restrict__ keys, int64_t first, int64_t tokens,
                              int32_t row) {
  int64_t low = first + 1, high = tokens;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (keys[middle] == row)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    scatter(EmbeddingBackwardArgs a, const int32_t* __restrict__ keys,
            const int32_t* __restrict__ tokens) {
  int64_t first = blockIdx.x;
  int32_t row = keys[first];
  if (row >= a.rows || (first > 0 && keys[first - 1] == row)) return;
  int64_t i = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  if (i >= a.cols) return;
  int64_t end = end_of_row(keys, first, a.tokens, row);
  float sums[N];
  float* to = a.d_table + row * a.cols + i;
#pragma unroll
  for (int j = 0; j < N; ++j) sums[j] = to[j];
#pragma unroll 8
  for (int64_t p = first; p < end; ++p) {
    auto pack = load<N>(static_cast<const T*>(a.dy) + tokens[p] * a.cols + i);
#pragma unroll
    for (int j = 0; j < N; ++j) sums[j] += to_float(pack.item[j]);
  }
#pragma unroll
  for (int j = 0; j < N; ++j) to[j] = sums[j];
}

size_t rounded_up(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

cudaError_t embedding(const Launch& launch, const EmbeddingArgs& a) {
  if (a.tokens <= 0) return cudaSuccess;
  auto blocks = static_cast<unsigned>(std::min<int64_t>(a.tokens, int64_t{launch.processors} * 32));
  return with_float_type(a.dtype, [&]<class T>(T) {
    if (a.cols % kPack<T> == 0 && aligned(16, a.table, a.y))
      gather<T, kPack<T>><<<blocks, kThreads, 0, launch.stream>>>(a);
    else
      gather<T, 1><<<blocks, kThreads, 0, launch.stream>>>(a);
    return cudaGetLastError();
  });
}

cudaError_t embedding_backward(const Launch& launch, const EmbeddingBackwardArgs& a) {
  if (a.tokens <= 0 || a.cols <= 0) return cudaSuccess;
  if (a.tokens > INT32_MAX || a.rows >= INT32_MAX) return cudaErrorInvalidValue;
  auto n = static_cast<size_t>(a.tokens);
  int bits = 1;
  while ((int64_t{1} << bits) <= a.rows) ++bits;
  size_t list = rounded_up(n * sizeof(int32_t)), temporary = 0;
  int32_t* none = nullptr;
  if (cudaError_t status = cub::DeviceRadixSort::SortPairs(nullptr, temporary, none, none, none,
                                                           none, a.tokens, 0, bits))
    return status;
  auto* memory = static_cast<char*>(launch.scratch(4 * list + temporary));
  if (!memory) return cudaErrorMemoryAllocation;
  int32_t* part[4];
  for (int i = 0; i < 4; ++i)
    part[i] = reinterpret_cast<int32_t*>(memory + static_cast<size_t>(i) * list);
  auto blocks = static_cast<unsigned>(
      std::min<int64_t>(ceil_div(a.tokens, 256), int64_t{launch.processors} * 16));
  rows_of<<<blocks, 256, 0, launch.stream>>>(a, part[0], part[1]);
  if (cudaError_t status =
          cub::DeviceRadixSort::SortPairs(memory + 4 * list, temporary, part[0], part[2], part[1],
                                          part[3], a.tokens, 0, bits, launch.stream))
    return status;
  return with_float_type(a.dtype, [&]<class T>(T) {
    bool vector = a.cols % kPack<T> == 0 && aligned(16, a.dy, a.d_table);
    int64_t columns = vector ? a.cols / kPack<T> : a.cols;
    dim3 grid(static_cast<unsigned>(a.tokens), static_cast<unsigned>(ceil_div(columns, kThreads)));
    if (vector)
      scatter<T, kPack<T>><<<grid, kThreads, 0, launch.stream>>>(a, part[2], part[3]);
    else
      scatter<T, 1><<<grid, kThreads, 0, launch.stream>>>(a, part[2], part[3]);
    return cudaGetLastError();
  });
}

}  // namespace mtrain::cuda
