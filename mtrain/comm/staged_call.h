// A call on device memory by a communicator that moves host memory: what is sent is copied to the
// host when the call begins, what came is copied back when it is waited for. For the rank's own
// thread.
#pragma once
#include <functional>

#include "mtrain/comm/call.h"
#include "mtrain/comm/pending.h"

namespace mtrain {

/// `start` begins the same call on host memory. REQUIRES: call.run.
Pending start_staged(const CommCall& call, int rank, int size,
                     const std::function<Pending(const CommCall&)>& start);

/// Elements that a call reads and writes on this rank.
struct CallExtent {
  int64_t in = 0, out = 0;
};
MT_API CallExtent extent_of(const CommCall& call, int rank, int size);

}  // namespace mtrain
