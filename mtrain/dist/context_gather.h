// Internal to context parallelism: attention with the gathered keys and values of all ranks.
// Stateless; for the rank's own thread.
#pragma once
#include <memory>

#include "mtrain/dist/context_block.h"
#include "mtrain/dist/context_slice.h"
#include "mtrain/dist/mesh.h"

namespace mtrain {

/// qkv [rows, width] -> o [rows, H*E]; `sinks` may be undefined. REQUIRES: one ring over the axis,
/// and the same number of rows on every rank. Collective, in forward and backward.
Tensor gather_attention(const Tensor& qkv, const ContextBlock& block,
                        const std::shared_ptr<const ContextSlice>& slice, const Axis& axis,
                        const Tensor& sinks);

}  // namespace mtrain
