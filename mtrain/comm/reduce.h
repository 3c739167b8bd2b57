// The reference reduction of the ranks' buffers, used by every communicator for host memory.
// Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <span>

#include "mtrain/comm/call.h"

namespace mtrain {

/// Combines inputs[0] .. inputs[n-1] in that order, element by element, and writes the result to
/// every output. bf16 and fp16 are combined in float and rounded once; integer sums wrap around. An
/// output may be one of the inputs, but must not overlap one partly. REQUIRES: n >= 1. Floating
/// types, int32, int64.
MT_API void reduce_in_order(std::span<const void* const> inputs, std::span<void* const> outputs,
                            int64_t count, DType dtype, ReduceOp op);

/// The instruction-set levels for which it is compiled, and the best one that this CPU supports.
/// All levels give the same bits.
enum class ReduceLevel : uint8_t { base, neon, avx2, avx512 };
ReduceLevel best_reduce_level();
/// REQUIRES: the CPU has `level`.
void reduce_in_order_at(ReduceLevel level, std::span<const void* const> inputs,
                        std::span<void* const> outputs, int64_t count, DType dtype, ReduceOp op);

}  // namespace mtrain
