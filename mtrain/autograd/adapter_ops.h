// Differentiable ops of low-rank adapters. Conventions as in ops.h.
#pragma once
#include "mtrain/autograd/ops.h"

namespace mtrain {

/// y [T,N] = residual [T,N] + x [T, M*R] · wᵀ, where w [N, M*R] consists of N x M blocks of R
/// columns: block (n, m) is the row rows[n*M + m] of table [N,R], and zeros where that is -1.
/// `rows`: int32 [N*M]. The sum is rounded once; the gradient of the table is accumulated in float.
MT_API Tensor spread_linear(const Tensor& x_TC, const Tensor& table_NR, const Tensor& rows_NM,
                            const Tensor& residual_TN);

/// Constants of scale_columns: float [N]; undefined: a factor of 1, an offset of 0.
struct ColumnGain {
  Tensor factor = {}, offset = {};
};
/// y[T,N] = x * gain in every row, with gain[N] = v * factor + offset. Computed in float and
/// rounded once. `v` is a parameter.
MT_API Tensor scale_columns(const Tensor& x_TN, const Tensor& v_N, const ColumnGain& gain = {});

/// out[r] = <a[r], b[r]> of matrices [R,D] of one dtype, in float; without gradients. `numbers`:
/// int32, 0 … R-1.
MT_API Tensor dots_of_rows(const Tensor& a_RD, const Tensor& b_RD, const Tensor& numbers_R);

}  // namespace mtrain
