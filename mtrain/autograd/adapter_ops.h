// Differentiable ops of low-rank adapters. Conventions as in ops.h.
#pragma once
#include "mtrain/autograd/ops.h"

namespace mtrain {

/// y [N, M*R]: a matrix of N x M blocks of R columns. Block (n, m) is the row rows[n*M + m] of
/// table [N,R]; zeros where that is -1. `rows`: int32 [N*M].
MT_API Tensor spread_rows(const Tensor& table_NR, const Tensor& rows_NM);

}  // namespace mtrain
