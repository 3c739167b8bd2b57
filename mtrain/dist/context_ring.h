// Internal to context parallelism: attention in a ring of ranks.
#pragma once
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/dist/context_block.h"
#include "mtrain/dist/context_slice.h"

namespace mtrain {

/// Some rows of this rank whose sequences lie on a ring: member m is rank first + m * step of the
/// communicator.
struct RingPart {
  ContextRing ring;
  int me = 0;
  int first = 0, step = 1;
  int64_t row = 0;  // the first of them
};

/// Attention of all parts, whose rows are one behind the other in `qkv`.
Tensor ring_attention(const Tensor& qkv, const ContextBlock& block, std::vector<RingPart> parts,
                      Communicator& comm);

}  // namespace mtrain
