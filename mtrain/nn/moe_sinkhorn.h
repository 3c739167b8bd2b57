// Sinkhorn balancing of a router: an assignment of tokens to experts that gives every expert the
// same mass replaces the scores for the selection (Sinkhorn & Knopp 1967; Clark et al. 2022,
// arXiv:2202.01169; Megatron-LM, megatron/core/transformer/moe/moe_utils.py). The assignment is
// that of the whole micro-batch, also if its tokens are sharded over tp and cp, so the result does
// not depend on the layout. Stateless.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "mtrain/nn/parallel.h"
#include "mtrain/tensor/tensor.h"

namespace mtrain {

/// p[t,e] = d1[e] exp(logits[t,e]) d0[t], where d0 and d1 scale the rows to sums of 1/T and the
/// columns to sums of 1/E, in turns until d1 changes by at most 1e-4 in the mean. `logits` [T,E].
/// Logits are taken relative to the largest of their row.
MT_API std::vector<double> sinkhorn(std::span<const double> logits, int64_t experts);

/// p of this rank's tokens, from the logits of all ranks that share the micro-batch. `padding` [T],
/// not 0: the position does not take part, and its values are 0; empty: none. Collective over tp
/// (with sequence parallelism) and cp.
MT_API std::vector<double> sinkhorn_assignment(const Tensor& logits_TE,
                                               std::span<const int32_t> padding,
                                               const ParallelContext& parallel);

}  // namespace mtrain
