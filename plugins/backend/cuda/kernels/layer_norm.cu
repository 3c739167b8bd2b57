#include "column_sums.cuh"
#include "mtrain/kernel/layer_norm.h"
#include "register_rows.cuh"

namespace mtrain::cuda {

namespace {

template <class T>
struct Forward {
  static constexpr int kInputs = 1, kResult = 0, kVectors = 2;
  LayerNormArgs a;
  __device__ const T* vector(int which) const {
    return static_cast<const T*>(which == 0 ? a.w : a.b);
  }
  __device__ const T* in(int, int64_t row) const {
    return static_cast<const T*>(a.x) + row * a.cols;
  }
  __device__ T* out(int64_t row) const { return static_cast<T*>(a.y) + row * a.cols; }
  template <class Team, class Row, class Out, class Vector>
  __device__ void run(Team team, int64_t row, const Row (&in)[1], Out out,
                      const Vector (&vectors)[kVectors]) const {
    const VectorWeight<Vector> w{vectors[0], a.offset};
    layer_norm_row(team, in[0], w, vectors[1], out, a.mean + row, a.rstd + row, a.cols, a.eps);
  }
};

/// The result overwrites dy; with kOnto it is added to the previous dx, which is a third input.
template <class T, bool kOnto>
struct Backward {
  static constexpr int kInputs = kOnto ? 3 : 2, kResult = kOnto ? 2 : 0, kVectors = 1;
  LayerNormBackwardArgs a;
  __device__ const T* vector(int) const { return static_cast<const T*>(a.w); }
  __device__ const T* in(int which, int64_t row) const {
    return static_cast<const T*>(which == 0 ? a.dy : which == 1 ? a.x : a.dx) + row * a.cols;
  }
  __device__ T* out(int64_t row) const { return static_cast<T*>(a.dx) + row * a.cols; }
  template <class Team, class Row, class Out, class Vector>
  __device__ void run(Team team, int64_t row, const Row (&in)[kInputs], Out out,
                      const Vector (&vectors)[1]) const {
    const VectorWeight<Vector> w{vectors[0], a.offset};
    layer_norm_row_backward(team, in[0], in[1], w, a.mean[row], a.rstd[row], out, a.cols, kOnto);
  }
};

template <class T>
struct ParameterGradients {
  static constexpr int kSums = 2;
  const T *dy, *x;
  const float *mean, *rstd;
  int64_t cols;
  template <int N>
  __device__ void add(int64_t row, int64_t col, float (&sums)[2][N]) const {
    auto d = load<N>(dy + row * cols + col), v = load<N>(x + row * cols + col);
    float m = mean[row], r = rstd[row];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      sums[0][j] += to_float(d.item[j]) * ((to_float(v.item[j]) - m) * r);
      sums[1][j] += to_float(d.item[j]);
    }
  }
};

}  // namespace

cudaError_t layer_norm(const Launch& launch, const LayerNormArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    return each_register_row<T>(launch, a.rows, a.cols, aligned(16, a.x, a.y, a.w, a.b),
                                Forward<T>{a});
  });
}

cudaError_t layer_norm_backward(const Launch& launch, const LayerNormBackwardArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    bool vector = whole_packs<T>(a.cols) && aligned(16, a.dy, a.x);
    if (a.dw || a.db) {
      ParameterGradients<T> f{static_cast<const T*>(a.dy), static_cast<const T*>(a.x), a.mean,
                              a.rstd, a.cols};
      ColumnResult results[2] = {{a.dw, a.accumulate_dw}, {a.db, a.accumulate_db}};
      if (cudaError_t status = column_sums<T>(launch, a.rows, a.cols, vector, f, results))
        return status;
    }
    bool wide = aligned(16, a.dy, a.x, a.dx, a.w);
    if (a.dx && a.accumulate_dx)
      return each_register_row<T>(launch, a.rows, a.cols, wide, Backward<T, true>{a});
    if (a.dx) return each_register_row<T>(launch, a.rows, a.cols, wide, Backward<T, false>{a});
    return cudaSuccess;
  });
}

}  // namespace mtrain::cuda
