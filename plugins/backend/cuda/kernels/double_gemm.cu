// Products in double of operands of any floating type: tiles of C, of which each thread sums four
// elements, from copies in double of the tiles of A and B in shared memory. Sums are over k in
// order.
#include "pack.cuh"

namespace mtrain::cuda {

namespace {

constexpr int kSide = 32, kDepth = 16, kThreads = 16;

__device__ __forceinline__ double element(const void* x, int64_t i, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return static_cast<const double*>(x)[i];
    case DType::bf16:
      return static_cast<double>(to_float(static_cast<const bf16*>(x)[i]));
    case DType::f16:
      return static_cast<double>(to_float(static_cast<const f16*>(x)[i]));
    default:
      return static_cast<double>(static_cast<const float*>(x)[i]);
  }
}

__device__ __forceinline__ void put(void* x, int64_t i, DType dtype, double v) {
  switch (dtype) {
    case DType::f64:
      static_cast<double*>(x)[i] = v;
      return;
    case DType::bf16:
      static_cast<bf16*>(x)[i] = bf16(static_cast<float>(v));
      return;
    case DType::f16:
      static_cast<f16*>(x)[i] = f16(static_cast<float>(v));
      return;
    default:
      static_cast<float*>(x)[i] = static_cast<float>(v);
  }
}

__global__ void __launch_bounds__(kThreads* kThreads)
    double_tiles(DoubleGemmArgs g, int64_t across) {
  __shared__ double a_tile[kSide][kDepth + 1], b_tile[kDepth][kSide + 1];
  const int64_t row = blockIdx.x / across * kSide, col = blockIdx.x % across * kSide;
  const int tx = threadIdx.x, ty = threadIdx.y, self = ty * kThreads + tx;
  double sums[2][2] = {};
  for (int64_t k = 0; k < g.k; k += kDepth) {
#pragma unroll
    for (int e = self; e < kSide * kDepth; e += kThreads * kThreads) {
      // Neighbouring threads read neighbouring elements, as they are stored.
      const int ar = g.transpose_a ? e % kSide : e / kDepth,
                ak = g.transpose_a ? e / kSide : e % kDepth;
      const bool in_a = row + ar < g.m && k + ak < g.k;
      const int64_t at_a = g.transpose_a ? (k + ak) * g.m + row + ar : (row + ar) * g.k + k + ak;
      a_tile[ar][ak] = in_a ? element(g.a, at_a, g.a_dtype) : 0.0;
      const int bc = g.transpose_b ? e / kDepth : e % kSide,
                bk = g.transpose_b ? e % kDepth : e / kSide;
      const bool in_b = col + bc < g.n && k + bk < g.k;
      const int64_t at_b = g.transpose_b ? (col + bc) * g.k + k + bk : (k + bk) * g.n + col + bc;
      b_tile[bk][bc] = in_b ? element(g.b, at_b, g.b_dtype) : 0.0;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      const double a0 = a_tile[ty][i], a1 = a_tile[ty + kThreads][i];
      const double b0 = b_tile[i][tx], b1 = b_tile[i][tx + kThreads];
      sums[0][0] += a0 * b0, sums[0][1] += a0 * b1;
      sums[1][0] += a1 * b0, sums[1][1] += a1 * b1;
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int64_t r = row + ty + i * kThreads, c = col + tx + j * kThreads;
      if (r >= g.m || c >= g.n) continue;
      double v = sums[i][j];
      if (g.bias) v += element(g.bias, c, g.bias_dtype);
      if (g.accumulate) v += element(g.c, r * g.n + c, g.c_dtype);
      put(g.c, r * g.n + c, g.c_dtype, v);
    }
}

}  // namespace

cudaError_t double_gemm(const Launch& launch, const DoubleGemmArgs& g) {
  if (g.m <= 0 || g.n <= 0) return cudaSuccess;
  for (DType type : {g.a_dtype, g.b_dtype, g.c_dtype, g.bias_dtype})
    if (type != DType::f64 && type != DType::f32 && type != DType::bf16 && type != DType::f16)
      return cudaErrorInvalidValue;
  const int64_t across = ceil_div(g.n, kSide), down = ceil_div(g.m, kSide);
  double_tiles<<<static_cast<unsigned>(across * down), dim3(kThreads, kThreads), 0,
                 launch.stream>>>(g, across);
  return cudaGetLastError();
}

}  // namespace mtrain::cuda
