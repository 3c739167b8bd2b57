// What watching processes say to each other, as bytes: plain copies within one build, believed only
// as far as they make sense. Values and stateless functions.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/comm/failure.h"
#include "mtrain/comm/rank_activity.h"

namespace mtrain {

MT_API std::string bytes_of(const RankStatus& status);
/// Absent when `bytes` are no status.
MT_API std::optional<RankStatus> read_status(std::string_view bytes);

/// A failure, and the ranks whose fault it is.
struct FailureMessage {
  CommFailure failure;
  std::vector<int> ranks;
};
MT_API std::string bytes_of(const FailureMessage& message);
/// Absent when `bytes` are none. The error class is one of ErrorClass, whatever came.
MT_API std::optional<FailureMessage> read_failure(std::string_view bytes);

/// What a rank says first: the word that only members know, and who it is.
std::string hello_of(std::string_view word, int rank);
/// Of 1 .. num_ranks-1; absent when the word is wrong.
std::optional<int> read_hello(std::string_view text, std::string_view word, int num_ranks);

}  // namespace mtrain
