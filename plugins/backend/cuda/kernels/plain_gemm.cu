// A product for every shape: 16 x 16 tiles in shared memory, sums in float. Used only where
// cuBLASLt has no algorithm.
#include "pack.cuh"

namespace mtrain::cuda {

namespace {

constexpr int kTile = 16;

template <class T, class C>
__global__ void __launch_bounds__(kTile* kTile) tiles(GemmArgs g) {
  __shared__ float a_tile[kTile][kTile + 1], b_tile[kTile][kTile + 1];
  // Rows along x: only that dimension of a grid may exceed 65,535 blocks.
  int64_t row = static_cast<int64_t>(blockIdx.x) * kTile + threadIdx.y,
          col = static_cast<int64_t>(blockIdx.y) * kTile + threadIdx.x;
  const T* a = static_cast<const T*>(g.a) + blockIdx.z * g.stride_a;
  const T* b = static_cast<const T*>(g.b) + blockIdx.z * g.stride_b;
  float sum = 0;
  for (int64_t k = 0; k < g.k; k += kTile) {
    int64_t ka = k + threadIdx.x, kb = k + threadIdx.y;
    bool in_a = row < g.m && ka < g.k, in_b = col < g.n && kb < g.k;
    a_tile[threadIdx.y][threadIdx.x] =
        in_a ? to_float(g.transpose_a ? a[ka * g.lda + row] : a[row * g.lda + ka]) : 0.0f;
    b_tile[threadIdx.y][threadIdx.x] =
        in_b ? to_float(g.transpose_b ? b[col * g.ldb + kb] : b[kb * g.ldb + col]) : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile; ++i) sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
    __syncthreads();
  }
  if (row >= g.m || col >= g.n) return;
  C* c = static_cast<C*>(g.c) + blockIdx.z * g.stride_c + row * g.ldc + col;
  float value = g.alpha * ((g.scale_a ? *g.scale_a : 1.0f) * (g.scale_b ? *g.scale_b : 1.0f)) * sum;
  if (g.beta != 0) value += g.beta * to_float(*c);
  if (g.bias)
    value += g.bias_dtype == DType::f32    ? static_cast<const float*>(g.bias)[col]
             : g.bias_dtype == DType::bf16 ? to_float(static_cast<const bf16*>(g.bias)[col])
                                           : to_float(static_cast<const f16*>(g.bias)[col]);
  if (g.addend) value += to_float(static_cast<const C*>(g.addend)[row * g.ldc + col]);
  *c = C(value);
}

}  // namespace

cudaError_t plain_gemm(const Launch& launch, const GemmArgs& g) {
  if (g.m <= 0 || g.n <= 0 || g.batch <= 0) return cudaSuccess;
  dim3 grid(static_cast<unsigned>(ceil_div(g.m, kTile)),
            static_cast<unsigned>(ceil_div(g.n, kTile)), static_cast<unsigned>(g.batch));
  return with_float_type(g.dtype, [&]<class T>(T) {
    return with_float_type(g.c_dtype, [&]<class C>(C) {
      tiles<T, C><<<grid, dim3(kTile, kTile), 0, launch.stream>>>(g);
      return cudaGetLastError();
    });
  });
}

}  // namespace mtrain::cuda
