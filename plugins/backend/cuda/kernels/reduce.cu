// Sums over rows and over whole buffers, in a fixed order.
#include "column_sums.cuh"
#include "teams.cuh"

namespace mtrain::cuda {

namespace {

template <class T>
struct Column {
  static constexpr int kSums = 1;
  const T* x;
  int64_t cols;
  template <int N>
  __device__ void add(int64_t row, int64_t col, float (&sums)[1][N]) const {
    auto v = load<N>(x + row * cols + col);
#pragma unroll
    for (int j = 0; j < N; ++j) sums[0][j] += to_float(v.item[j]);
  }
};

constexpr int kNormThreads = 256;
constexpr int64_t kNormBlock = 65536;  // elements per block; fixes the order of the sum

__device__ double block_total(double mine) {
  __shared__ double warps[kNormThreads / kWarp];
  for (int step = kWarp / 2; step > 0; step /= 2) mine += __shfl_xor_sync(kAll, mine, step);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = mine;
  __syncthreads();
  double total = 0;
  for (double w : warps) total += w;
  __syncthreads();
  return total;
}

struct NormItem {
  const float* x;
  int64_t count;
  int first_block;
};
struct NormTable {
  NormItem item[kNormBatch];
  int items;
};
static_assert(sizeof(NormTable) <= 4000, "kernels take 4096 bytes of arguments");

__device__ __forceinline__ double square_of(float x) {
  return static_cast<double>(x) * static_cast<double>(x);
}

/// In double: a sum of many squares in float loses precision.
__global__ void __launch_bounds__(kNormThreads)
    squares(const __grid_constant__ NormTable table, double* partial) {
  int which = 0;
  while (which + 1 < table.items &&
         static_cast<int>(blockIdx.x) >= table.item[which + 1].first_block)
    ++which;
  const NormItem& t = table.item[which];
  int64_t begin = (static_cast<int64_t>(blockIdx.x) - t.first_block) * kNormBlock,
          end = min(t.count, begin + kNormBlock);
  bool vector = reinterpret_cast<uintptr_t>(t.x) % 16 == 0;
  int64_t whole = vector ? begin + (end - begin) / 4 * 4 : begin;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x * 4; i < whole; i += kNormThreads * 4) {
    auto v = load<4>(t.x + i);
#pragma unroll
    for (int j = 0; j < 4; ++j) sum += square_of(v.item[j]);
  }
  for (int64_t i = whole + threadIdx.x; i < end; i += kNormThreads) sum += square_of(t.x[i]);
  sum = block_total(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// One block per tensor adds that tensor's partial sums.
__global__ void __launch_bounds__(kNormThreads)
    add_squares(const __grid_constant__ NormTable table, const double* partial, double* out) {
  const NormItem& t = table.item[blockIdx.x];
  int64_t blocks = (t.count + kNormBlock - 1) / kNormBlock;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += kNormThreads) sum += partial[t.first_block + i];
  sum = block_total(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

}  // namespace

cudaError_t column_sum(const Launch& launch, const ColumnSumArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    Column<T> f{static_cast<const T*>(a.x), a.cols};
    ColumnResult results[1] = {{a.out, a.accumulate}};
    return column_sums<T>(launch, a.rows, a.cols, a.cols % kPack<T> == 0 && aligned(16, a.x), f,
                          results);
  });
}

cudaError_t squared_norms(const Launch& launch, const SquaredNormArgs* list, int count,
                          double* out) {
  if (count > kNormBatch) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  NormTable table{};
  int64_t blocks = 0;
  for (const SquaredNormArgs* a = list; a != list + count; ++a) {
    table.item[table.items++] = {a->x, std::max<int64_t>(a->count, 0), static_cast<int>(blocks)};
    blocks += std::max<int64_t>(
        1, ceil_div(a->count, kNormBlock));  // an empty tensor has one block, whose sum is 0
  }
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  auto partial = static_cast<double*>(launch.scratch(sizeof(double) * static_cast<size_t>(blocks)));
  if (!partial) return cudaErrorMemoryAllocation;
  squares<<<static_cast<unsigned>(blocks), kNormThreads, 0, launch.stream>>>(table, partial);
  add_squares<<<static_cast<unsigned>(count), kNormThreads, 0, launch.stream>>>(table, partial,
                                                                                out);
  return cudaGetLastError();
}

}  // namespace mtrain::cuda
