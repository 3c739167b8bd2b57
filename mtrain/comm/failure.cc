#include "mtrain/comm/failure.h"

#include "mtrain/base/text.h"

namespace mtrain {

namespace {
constexpr size_t kMostRanksShown = 16;
constexpr const char* kContinue =
    "see the output of that rank and its machine's log; the same command continues from the newest "
    "checkpoint";

std::string first_ranks_text(std::span<const int> ranks) {
  std::string text = "ranks";
  for (size_t i = 0; i < ranks.size() && i < kMostRanksShown; ++i) text += cat(" ", ranks[i]);
  if (ranks.size() > kMostRanksShown)
    text += cat(" … ", ranks.back(), ", ", ranks.size(), " in total");
  return text;
}
}  // namespace

ErrorClass error_class_of(int64_t number) {
  for (ErrorClass known :
       {ErrorClass::usage, ErrorClass::config, ErrorClass::data, ErrorClass::checkpoint,
        ErrorClass::plugin, ErrorClass::numeric, ErrorClass::peer, ErrorClass::io, ErrorClass::bug})
    if (static_cast<int64_t>(known) == number) return known;
  return ErrorClass::peer;
}

std::string call_place(const CommCall& call, uint64_t number, const std::string& group,
                       std::span<const int> world_ranks) {
  return cat(describe(call), " (#", number, " of group '", group,
             "': ", first_ranks_text(world_ranks), ")");
}

Error peer_error(const CommFailure& failure, int rank, const std::string& place) {
  if (failure.detected_by_watcher) return Error(ErrorClass::peer, failure.reason, kContinue);
  std::string who = failure.rank < 0 ? "" : cat("rank ", failure.rank, " failed: ");
  return Error(ErrorClass::peer, cat(who, failure.reason, "; rank ", rank, " was in ", place),
               failure.rank < 0 ? "the ranks must make the same calls in the same order"
                                : cat("see what rank ", failure.rank, " reported"));
}

std::string mismatch_reason(const std::string& group, uint64_t number, int rank_a,
                            const CommCall& a, int rank_b, const CommCall& b) {
  return cat("ranks disagree on call #", number, " of group '", group, "': rank ", rank_a,
             " calls ", describe(a), ", rank ", rank_b, " calls ", describe(b));
}

std::string name_mismatch_reason(const std::string& parent, int rank_a, const std::string& name_a,
                                 int rank_b, const std::string& name_b) {
  return cat("ranks disagree on the name of their part of group '", parent, "': rank ", rank_a,
             " says '", name_a, "', rank ", rank_b, " '", name_b, "'");
}

}  // namespace mtrain
