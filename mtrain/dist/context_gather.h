// Internal to context parallelism: attention with the keys and values of all ranks gathered.
#pragma once
#include <memory>

#include "mtrain/dist/context_block.h"
#include "mtrain/dist/context_slice.h"
#include "mtrain/dist/mesh.h"

namespace mtrain {

/// REQUIRES: one ring over the axis, with as many rows on every rank.
Tensor gather_attention(const Tensor& qkv, const ContextBlock& block,
                        const std::shared_ptr<const ContextSlice>& slice, const Axis& axis);

}  // namespace mtrain
