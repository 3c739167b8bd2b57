// Key/value heads for more ranks than there are groups: each group becomes several, which share out
// its queries and have a copy of its key and value each. Host memory.
#pragma once
#include "mtrain/autograd/ops.h"

namespace mtrain {

/// The layout with `copies` groups for each. REQUIRES: copies divides queries_per_group().
HeadLayout with_copies(const HeadLayout& layout, int64_t copies);
/// A fused projection [T, layout.width()] in that layout. The gradients of a key's copies are added
/// in float.
Tensor repeat_kv(const Tensor& qkv, const HeadLayout& layout, int64_t copies);

}  // namespace mtrain
