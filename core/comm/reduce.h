// The one definition of what combining the ranks' buffers gives, for every kind of communicator. Stateless;
// thread-safe.
#pragma once
#include <cstdint>
#include <span>

#include "mtrain/comm/call.h"

namespace mtrain {

/// Combines inputs[0] .. inputs[n-1] in that order, element by element, and writes the result to every
/// output. bf16 and fp16 are combined in float and rounded once; integer sums wrap around. An output may be
/// one of the inputs, not overlap one otherwise. n >= 1. Floating types, int32, int64.
MT_API void reduce_in_order(std::span<const void* const> inputs, std::span<void* const> outputs,
                            int64_t count, DType dtype, ReduceOp op);

}  // namespace mtrain
