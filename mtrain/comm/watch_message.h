// Messages between watching processes, as bytes: plain copies within one build, validated on
// receipt. Values and stateless functions.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/comm/failure.h"
#include "mtrain/comm/rank_activity.h"

namespace mtrain {

MT_API std::string bytes_of(const RankStatus& status);
/// Absent if `bytes` are not a valid status.
MT_API std::optional<RankStatus> read_status(std::string_view bytes);

/// A failure, and the ranks at fault.
struct FailureMessage {
  CommFailure failure;
  std::vector<int> ranks;
};
MT_API std::string bytes_of(const FailureMessage& message);
/// Absent if `bytes` are not a valid message. The error class is always a value of ErrorClass.
MT_API std::optional<FailureMessage> read_failure(std::string_view bytes);

/// The first message of a rank: the secret word of the job, and its rank.
std::string hello_of(std::string_view word, int rank);
/// The rank, 1 .. num_ranks-1; absent if the word is wrong.
std::optional<int> read_hello(std::string_view text, std::string_view word, int num_ranks);

}  // namespace mtrain
