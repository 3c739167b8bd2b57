// How a failed job is told: the same sentences from every kind of communicator. Values only;
// thread-safe.
#pragma once
#include <span>
#include <string>

#include "mtrain/base/error.h"
#include "mtrain/comm/call.h"

namespace mtrain {

/// The first failure of a job.
struct CommFailure {
  int rank = -1;       // in the world; -1 when it is nobody's alone
  std::string reason;  // for a mismatch: who called what
  ErrorClass error_class = ErrorClass::peer;
  bool found = false;  // by whoever watches; `reason` is the whole report and names the rank
};

/// The class that another process names as a number; `peer` for a number that is none, 0 and 256
/// included: what came from elsewhere never ends a process with success.
MT_API ErrorClass error_class_of(int64_t number);

/// "all_reduce sum of 10 fp32 (#17 of group 'tp': ranks 0 2 4 6)". `number` counts a group's calls
/// from 1; ranks are the world's.
MT_API std::string call_place(const CommCall& call, uint64_t number, const std::string& group,
                              std::span<const int> world_ranks);

/// What world rank `rank` throws at `place`: "rank 2 failed: reason; rank 0 was in …".
MT_API Error peer_error(const CommFailure& failure, int rank, const std::string& place);

/// The reason when calls of two ranks at one place do not agree.
MT_API std::string mismatch_reason(const std::string& group, uint64_t number, int rank_a,
                                   const CommCall& a, int rank_b, const CommCall& b);

/// The reason when ranks that split() off one group name it differently.
MT_API std::string name_mismatch_reason(const std::string& parent, int rank_a,
                                        const std::string& name_a, int rank_b,
                                        const std::string& name_b);

}  // namespace mtrain
