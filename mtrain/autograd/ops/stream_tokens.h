// The global token indices that key the random draws of the residual stream. Stateless.
#pragma once
#include <vector>

#include "mtrain/tensor/execution_context.h"

namespace mtrain {

/// The global token indices of the residual stream's rows, in order.
std::vector<RowRange> stream_tokens(const ExecutionContext& ctx, int64_t rows);

}  // namespace mtrain
