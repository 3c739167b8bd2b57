// Reorders rows between the order of ranks and the order of tokens in their sequences. Stateless;
// for the rank's own thread.
#pragma once
#include <vector>

#include "mtrain/autograd/tape.h"
#include "mtrain/dist/context_slice.h"

namespace mtrain {

/// The rows of `x` [rows, width], concatenated range by range; `back`: the inverse permutation. The
/// ranges cover all rows exactly once.
Tensor ordered(ExecutionContext& ctx, const Tensor& x, const std::vector<RowRange>& ranges,
               bool back);
/// The same as a differentiable op.
Tensor reorder_rows(const Tensor& x, const std::vector<RowRange>& ranges, bool back);

}  // namespace mtrain
