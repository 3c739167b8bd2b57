// Differentiable ops of low-rank adapters. Conventions as in ops.h.
#pragma once
#include "mtrain/autograd/ops.h"

namespace mtrain {

/// y [T,N] = residual [T,N] + x [T, M*R] · wᵀ, where w [N, M*R] consists of N x M blocks of 1 x R:
/// block (n, m) is row rows[n*M + m] of table [N,R], or zeros if that index is -1. `rows`: int32
/// [N*M]. The sum is rounded once; the gradient of the table is accumulated in float.
MT_API Tensor spread_linear(const Tensor& x_TC, const Tensor& table_NR, const Tensor& rows_NM,
                            const Tensor& residual_TN);

/// The constant inputs of scale_columns(), float [N] each. An undefined factor counts as 1, an
/// undefined offset as 0.
struct ColumnGain {
  Tensor factor = {}, offset = {};
};
/// y[T,N] = x * gain in every row, with gain[N] = v * factor + offset. Computed in float and
/// rounded once. `v` is a parameter.
MT_API Tensor scale_columns(const Tensor& x_TN, const Tensor& v_N, const ColumnGain& gain = {});

/// y[T,N] = x * factors in every row, for constant factors: float [N]. Rounded once. x may be a
/// partial sum.
MT_API Tensor times_columns(const Tensor& x_TN, const Tensor& factors_N);

/// out[r] = <a[r], b[r]>, float [R]: the dot products of the rows of two matrices [R,D] of the same
/// dtype. Not differentiable. `numbers`: the row indices 0 … R-1, int32.
MT_API Tensor dots_of_rows(const Tensor& a_RD, const Tensor& b_RD, const Tensor& numbers_R);

}  // namespace mtrain
