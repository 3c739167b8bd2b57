// Internal to context parallelism: ring attention. For the rank's own thread; the communicator must
// outlive the tape.
#pragma once
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/dist/context_block.h"
#include "mtrain/dist/context_slice.h"

namespace mtrain {

/// Consecutive rows of this rank whose sequences are sharded over one ring: member m of the ring is
/// rank first + m * step of the communicator.
struct RingPart {
  ContextRing ring;
  int me = 0;
  int first = 0, step = 1;
  int64_t row = 0;                   // the first of these rows
  std::vector<int64_t> starts = {};  // the first token of each sequence in the micro-batch
};

/// Attention of all parts, whose rows are consecutive in `qkv` [rows, width]; returns o [rows,
/// H*E]; `sinks` may be undefined. Collective over the members of each ring, in forward and
/// backward.
Tensor ring_attention(const Tensor& qkv, const ContextBlock& block, std::vector<RingPart> parts,
                      Communicator& comm, const Tensor& sinks);

}  // namespace mtrain
