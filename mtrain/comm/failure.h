// Error messages for failed jobs, the same for every kind of communicator. Values only;
// thread-safe.
#pragma once
#include <span>
#include <string>

#include "mtrain/base/error.h"
#include "mtrain/comm/call.h"

namespace mtrain {

/// The first failure of a job.
struct CommFailure {
  int rank = -1;       // in the world; -1 if no single rank is at fault
  std::string reason;  // for a mismatch: the calls of both ranks
  ErrorClass error_class = ErrorClass::peer;
  bool detected_by_watcher = false;  // `reason` is the whole report and names the rank
};

/// The class for a number from another process; `peer` for a number that is no class, including 0
/// and 256, so that such a number never ends a process with success.
MT_API ErrorClass error_class_of(int64_t number);

/// "all_reduce sum of 10 fp32 (#17 of group 'tp': ranks 0 2 4 6)". `number` counts a group's calls
/// from 1; ranks are the world's.
MT_API std::string call_place(const CommCall& call, uint64_t number, const std::string& group,
                              std::span<const int> world_ranks);

/// The Error of world rank `rank` in the call `place`: "rank 2 failed: reason; rank 0 was in …".
MT_API Error peer_error(const CommFailure& failure, int rank, const std::string& place);

/// The reason if the calls of two ranks with the same number do not match.
MT_API std::string mismatch_reason(const std::string& group, uint64_t number, int rank_a,
                                   const CommCall& a, int rank_b, const CommCall& b);

/// The reason if ranks pass different names for one group to split().
MT_API std::string name_mismatch_reason(const std::string& parent, int rank_a,
                                        const std::string& name_a, int rank_b,
                                        const std::string& name_b);

}  // namespace mtrain
