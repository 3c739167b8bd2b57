// Rows in another order: between the order of ranks and that of tokens in their sequences. Host
// memory.
#pragma once
#include <vector>

#include "mtrain/autograd/tape.h"
#include "mtrain/dist/context_slice.h"

namespace mtrain {

/// The rows of `x` read range by range; `back`: from that order to the one it was. The ranges are
/// all rows, each once.
Tensor ordered(Run& run, const Tensor& x, const std::vector<RowRange>& ranges, bool back);
/// The same as an op.
Tensor reorder_rows(const Tensor& x, const std::vector<RowRange>& ranges, bool back);

}  // namespace mtrain
