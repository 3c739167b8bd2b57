// Products in double of operands of any floating type: tiles of C, each with copies in double of
// its parts of A and B. A tile's sum is over k in order, so its bits do not depend on the number of
// threads.
#include "mtrain/cpu/kernels/launch.h"

namespace mtrain::cpu::MT_ISA {

namespace {

constexpr int64_t kDoubleRows = 32, kDoubleCols = 32,
                  kDoubleDepth = 64;             // of a tile, and of its copies
constexpr int64_t kStepRows = 4, kStepCols = 8;  // sums that stay in registers

inline double to_double(double x) { return x; }
template <class T>
inline double to_double(T x) {
  return static_cast<double>(to_float(x));
}
template <class T>
inline T from_double(double x) {
  return T(static_cast<float>(x));
}
template <>
inline double from_double<double>(double x) {
  return x;
}

template <class F>
inline void with_wide_type(DType dtype, F&& f) {
  if (dtype == DType::f64) return f(double{});
  with_float_type(dtype, f);
}

/// A part of a matrix: [rows, cols] from (row, col) on, of a matrix with rows of `stride` elements
/// as stored.
struct Part {
  int64_t row, col, rows, cols, stride;
  bool transposed;
};
/// out[r * step + c] = part(r, c); 0 outside of it, up to `step` columns and `padded` rows.
template <class T>
inline void copy_part(const T* x, const Part& p, double* out, int64_t step, int64_t padded) {
  for (int64_t r = 0; r < padded; ++r)
    for (int64_t c = 0; c < step; ++c) {
      const int64_t i = p.row + r, j = p.col + c;
      const bool inside = r < p.rows && c < p.cols;
      out[r * step + c] =
          inside ? to_double(x[p.transposed ? j * p.stride + i : i * p.stride + j]) : 0;
    }
}

/// sums += a b for kStepRows rows and kStepCols columns.
inline void add_products(const double* a, const double* b, int64_t depth, double* sums) {
  double s[kStepRows][kStepCols];
  for (int64_t i = 0; i < kStepRows; ++i)
    for (int64_t j = 0; j < kStepCols; ++j) s[i][j] = sums[i * kDoubleCols + j];
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t i = 0; i < kStepRows; ++i) {
      const double left = a[i * kDoubleDepth + k];
#pragma omp simd
      for (int64_t j = 0; j < kStepCols; ++j) s[i][j] += left * b[k * kDoubleCols + j];
    }
  for (int64_t i = 0; i < kStepRows; ++i)
    for (int64_t j = 0; j < kStepCols; ++j) sums[i * kDoubleCols + j] = s[i][j];
}

/// The sums of the tile at (row, col), without bias.
inline void sum_tile(const DoubleGemmArgs& g, int64_t row, int64_t col, double* sums) {
  const int64_t rows = std::min(kDoubleRows, g.m - row), cols = std::min(kDoubleCols, g.n - col);
  double a[kDoubleRows * kDoubleDepth], b[kDoubleDepth * kDoubleCols];
  std::fill(sums, sums + kDoubleRows * kDoubleCols, 0.0);
  for (int64_t k = 0; k < g.k; k += kDoubleDepth) {
    const int64_t depth = std::min(kDoubleDepth, g.k - k);
    with_wide_type(g.a_dtype, [&]<class T>(T) {
      copy_part(static_cast<const T*>(g.a),
                {row, k, rows, depth, g.transpose_a ? g.m : g.k, g.transpose_a}, a, kDoubleDepth,
                kDoubleRows);
    });
    with_wide_type(g.b_dtype, [&]<class T>(T) {
      copy_part(static_cast<const T*>(g.b),
                {k, col, depth, cols, g.transpose_b ? g.k : g.n, g.transpose_b}, b, kDoubleCols,
                depth);
    });
    for (int64_t i = 0; i < rows; i += kStepRows)
      for (int64_t j = 0; j < cols; j += kStepCols)
        add_products(a + i * kDoubleDepth, b + j, depth, sums + i * kDoubleCols + j);
  }
}

/// Adds the bias to the tile and writes it.
template <class C>
inline void write_tile(const DoubleGemmArgs& g, int64_t row, int64_t col, double* sums) {
  const int64_t rows = std::min(kDoubleRows, g.m - row), cols = std::min(kDoubleCols, g.n - col);
  if (g.bias)
    with_wide_type(g.bias_dtype, [&]<class T>(T) {
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j)
          sums[i * kDoubleCols + j] += to_double(static_cast<const T*>(g.bias)[col + j]);
    });
  for (int64_t i = 0; i < rows; ++i) {
    C* c = static_cast<C*>(g.c) + (row + i) * g.n + col;
    for (int64_t j = 0; j < cols; ++j)
      c[j] = from_double<C>((g.accumulate ? to_double(c[j]) : 0) + sums[i * kDoubleCols + j]);
  }
}

}  // namespace

void double_gemm(Stream& stream, const DoubleGemmArgs& args) {
  const int64_t across = (args.n + kDoubleCols - 1) / kDoubleCols,
                down = (args.m + kDoubleRows - 1) / kDoubleRows;
  for_tasks(cpu_stream(stream), across * down, [&](int64_t tile) {
    const int64_t row = tile / across * kDoubleRows, col = tile % across * kDoubleCols;
    double sums[kDoubleRows * kDoubleCols];
    sum_tile(args, row, col, sums);
    with_wide_type(args.c_dtype, [&]<class C>(C) { write_tile<C>(args, row, col, sums); });
  });
}

}  // namespace mtrain::cpu::MT_ISA
