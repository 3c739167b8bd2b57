// A call on device memory by a communicator for host memory: copies the input to the host when the
// call starts, and the result back to the device when the caller waits for it. For the rank's own
// thread.
#pragma once
#include <functional>

#include "mtrain/comm/call.h"
#include "mtrain/comm/pending.h"

namespace mtrain {

/// `start` starts the same call on host memory. REQUIRES: call.ctx is not null.
Pending start_staged(const CommCall& call, int rank, int size,
                     const std::function<Pending(const CommCall&)>& start);

/// Elements that a call reads and writes on this rank.
struct CallExtent {
  int64_t in = 0, out = 0;
};
MT_API CallExtent extent_of(const CommCall& call, int rank, int size);

}  // namespace mtrain
