// Matrix products y = x Bᵀ with few rows, as in text generation: dot products of unpacked rows of
// both operands. B, which dominates the cost, is read once and never packed. For one kernel call.
#pragma once
#include "mtrain/cpu/kernels/gemm_tile.h"
#include "mtrain/cpu/kernels/launch.h"
#include "mtrain/cpu/kernels/scratch.h"
#include "mtrain/kernel/cast.h"

namespace mtrain::cpu::MT_ISA {

constexpr int64_t kDotColumns = 4;  // columns of B whose sums are in registers at the same time
constexpr int64_t kDotTask = 16;    // columns per task

/// Dot products of `Rows` rows of `a` (row stride `lda`) with `Columns` rows of B, which are
/// columns of the product: sums[r * kDotColumns + j].
template <int Rows, int Columns, class T>
inline void dot_block(const float* a, int64_t lda, const T* b, int64_t ldb, int64_t k,
                      float* sums) {
  Vec sum[Rows][Columns] = {};
  auto step = [&](int64_t p, Lanes lanes) __attribute__((always_inline)) {
    Vec right[Columns];
#pragma GCC unroll 4
    for (int j = 0; j < Columns; ++j) right[j] = load_lanes(b + j * ldb + p, lanes);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      Vec left = load_lanes(a + r * lda + p, lanes);
#pragma GCC unroll 4
      for (int j = 0; j < Columns; ++j) sum[r][j] += left * right[j];
    }
  };
  // A row of B is too short for the hardware's prefetcher, so the next block's rows are fetched a
  // cache line at a time.
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  int64_t p = 0;
  for (; p + kLine <= k; p += kLine) {
    for (int j = 0; j < Columns; ++j) __builtin_prefetch(b + (j + kDotColumns) * ldb + p, 0, 2);
    for (int64_t q = 0; q < kLine; q += kLanes) step(p + q, lanes_below(kLanes));
  }
  for (; p + kLanes <= k; p += kLanes) step(p, lanes_below(kLanes));
  if (p < k) step(p, lanes_below(k - p));
  for (int r = 0; r < Rows; ++r)
    for (int j = 0; j < Columns; ++j) sums[r * kDotColumns + j] = sum_lanes(sum[r][j]);
}

/// Dispatches to dot_block for up to four rows and columns.
template <class T>
inline void dot_some(const float* a, int64_t lda, int64_t rows, const T* b, int64_t ldb,
                     int64_t columns, int64_t k, float* sums) {
  auto with_rows = [&]<int kRows>(std::integral_constant<int, kRows>) {
    if (columns == kDotColumns) return dot_block<kRows, kDotColumns>(a, lda, b, ldb, k, sums);
    for (int64_t j = 0; j < columns; ++j)
      dot_block<kRows, 1>(a, lda, b + j * ldb, ldb, k, sums + j);
  };
  if (rows == 4) return with_rows(std::integral_constant<int, 4>());
  if (rows == 3) return with_rows(std::integral_constant<int, 3>());
  if (rows == 2) return with_rows(std::integral_constant<int, 2>());
  with_rows(std::integral_constant<int, 1>());
}

/// C = alpha * A Bᵀ + beta * C + bias + addend.
class DotGemm {
 public:
  DotGemm(CpuStream& stream, const GemmArgs& g) : stream_(stream), g_(g) {
    allocate_scratch(stream, [&](Pieces& pieces) {
      a_ = pieces.take<float>(g.m * g.k);
      if (g.bias) bias_ = pieces.take<float>(g.n);
      return 0;
    });
    with_float_type(g.dtype, [&]<class T>(T) {
      for (int64_t r = 0; r < g.m; ++r)
        cast_row(SerialTeam{}, static_cast<const T*>(g.a) + r * g.lda, a_ + r * g.k, g.k, 1.0f,
                 false);
    });
    if (g.bias)
      stream.kernels().cast(stream, {g.bias, bias_, g.n, 1, false, g.bias_dtype, DType::f32});
  }

  void run() {
    for_tasks(stream_, (g_.n + kDotTask - 1) / kDotTask, [&](int64_t task) {
      for (int64_t column = task * kDotTask, end = std::min(g_.n, column + kDotTask); column < end;
           column += kDotColumns)
        for (int64_t row = 0; row < g_.m; row += 4)
          block(row, column, std::min(kDotColumns, end - column));
    });
  }

 private:
  void block(int64_t row, int64_t column, int64_t columns) {
    float sums[4 * kDotColumns];
    int64_t rows = std::min<int64_t>(4, g_.m - row);
    with_float_type(g_.dtype, [&]<class T>(T) {
      dot_some(a_ + row * g_.k, g_.k, rows, static_cast<const T*>(g_.b) + column * g_.ldb, g_.ldb,
               columns, g_.k, sums);
    });
    with_float_type(g_.c_dtype, [&]<class C>(C) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < columns; ++j) {
          int64_t at = (row + r) * g_.ldc + column + j;
          C* c = static_cast<C*>(g_.c) + at;
          float y = g_.alpha * sums[r * kDotColumns + j];
          if (bias_) y += bias_[column + j];
          if (g_.addend) y += to_float(static_cast<const C*>(g_.addend)[at]);
          if (g_.beta != 0) y += g_.beta * to_float(*c);
          *c = C(y);
        }
    });
  }

  CpuStream& stream_;
  const GemmArgs& g_;
  float *a_ = nullptr, *bias_ = nullptr;
};

}  // namespace mtrain::cpu::MT_ISA
