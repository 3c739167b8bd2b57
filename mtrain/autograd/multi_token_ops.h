// Differentiable ops of multi-token prediction (DeepSeek-AI 2024, arXiv:2412.19437, 2.2): the input
// of a block for a later token, and its loss next to that of the next token. Conventions as in
// ops.h.
#pragma once
#include "mtrain/autograd/tape.h"

namespace mtrain {

/// y [T, A+B] = a [T, A] and b [T, B] side by side.
MT_API Tensor join_columns(const Tensor& a_TA, const Tensor& b_TB);

/// y [T+S, D] = a [T, D] and b [S, D] one below the other.
MT_API Tensor join_rows(const Tensor& a_TD, const Tensor& b_SD);
/// y [N, D] = rows [begin, begin + N) of x, which share its memory.
MT_API Tensor take_rows(const Tensor& x_TD, int64_t begin, int64_t count);

/// y = loss, float [T]. Backward gives its gradient to `loss` and `factor` times it to
/// `auxiliary`, so that the objective is the sum of y plus `factor` times the sum of `auxiliary`.
MT_API Tensor attach_loss(const Tensor& loss_T, const Tensor& auxiliary_T, float factor);

}  // namespace mtrain
