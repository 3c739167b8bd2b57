// Small products of float tiles that live in the first cache levels: C[M, N] (+)= A[M, K] · B[K, N]. B and C are row-major
// with N a multiple of the vector length; A may be walked in either direction, so its transpose needs no copy.
#pragma once
#include "mtrain/cpu/kernels/vec.h"

namespace mtrain::cpu::MT_ISA {

/// Rows that one block keeps in registers (beside two vectors of columns); M must be a multiple of it.
constexpr int kBlockRows = kLanes == 16 ? 8 : 4;

/// A's element (m, k) is at data[m * row + k * step].
struct TileA {
  const float* data;
  int64_t row, step;
};

template <int Columns>
MT_HD void product_block(TileA a, const float* b, int64_t ldb, float* c, int64_t ldc, int64_t k, bool accumulate) {
  Vec sum[kBlockRows][Columns];
#pragma GCC unroll 8
  for (int m = 0; m < kBlockRows; ++m)
#pragma GCC unroll 2
    for (int n = 0; n < Columns; ++n) sum[m][n] = accumulate ? load(c + m * ldc + n * kLanes) : Vec{};
  for (int64_t p = 0; p < k; ++p) {
    Vec column[Columns];
#pragma GCC unroll 2
    for (int n = 0; n < Columns; ++n) column[n] = load(b + p * ldb + n * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < kBlockRows; ++m) {
      float x = a.data[m * a.row + p * a.step];
#pragma GCC unroll 2
      for (int n = 0; n < Columns; ++n) sum[m][n] += x * column[n];
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kBlockRows; ++m)
#pragma GCC unroll 2
    for (int n = 0; n < Columns; ++n) store(c + m * ldc + n * kLanes, sum[m][n]);
}

/// One block of kBlockRows rows: n columns (a multiple of kLanes), k terms.
inline void product_rows(TileA a, const float* b, int64_t ldb, float* c, int64_t ldc, int64_t n, int64_t k,
                         bool accumulate) {
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) product_block<2>(a, b + i, ldb, c + i, ldc, k, accumulate);
  if (i < n) product_block<1>(a, b + i, ldb, c + i, ldc, k, accumulate);
}

}  // namespace mtrain::cpu::MT_ISA
