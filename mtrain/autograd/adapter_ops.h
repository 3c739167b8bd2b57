// Differentiable ops of low-rank adapters. Conventions as in ops.h.
#pragma once
#include "mtrain/autograd/ops.h"

namespace mtrain {

/// y [T,N] = residual [T,N] + x [T, M*R] · wᵀ, where w [N, M*R] consists of N x M blocks of R
/// columns: block (n, m) is the row rows[n*M + m] of table [N,R], and zeros where that is -1.
/// `rows`: int32 [N*M]. The sum is rounded once; the gradient of the table is accumulated in float.
MT_API Tensor spread_linear(const Tensor& x_TC, const Tensor& table_NR, const Tensor& rows_NM,
                            const Tensor& residual_TN);

}  // namespace mtrain
