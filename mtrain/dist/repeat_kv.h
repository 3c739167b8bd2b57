// Replicates key/value heads for more ranks than there are groups: each group becomes several
// groups that divide its queries, each with a copy of its key and value. Stateless; for the rank's
// own thread.
#pragma once
#include "mtrain/autograd/ops.h"

namespace mtrain {

/// The layout with `copies` groups per original group. REQUIRES: copies divides
/// queries_per_group().
HeadLayout with_copies(const HeadLayout& layout, int64_t copies);
/// Converts a fused projection [T, layout.width()] to that layout. Backward sums the gradients of a
/// key's copies in float.
Tensor repeat_kv(const Tensor& qkv, const HeadLayout& layout, int64_t copies);

}  // namespace mtrain
