// Dynamic context parallelism: on how many ranks, and on which, each sequence of a micro-batch is
// placed. Every rank computes the same result. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

/// Ranks [first, first + ranks) of the axis; `first` is a multiple of `ranks`.
struct ContextPlace {
  int first = 0, ranks = 1;
  bool operator==(const ContextPlace&) const = default;
};

/// A place for each sequence. The sizes are divisors of `ranks`, each a multiple of the previous
/// one: 1, 2, 4, 8 for 8 ranks. A place has the smallest size that gives no rank more than
/// `max_tokens` of the sequence, or `ranks` if none does. Sequences on the most ranks are placed
/// first, and of these the longest, each on the ranks with the fewest rows so far. No rank then
/// exceeds its equal share of all tokens by more than max_tokens plus one token per sequence. While
/// some ranks have no rows, the sequence with the most tokens per rank moves to the next larger
/// size.
MT_API std::vector<ContextPlace> context_places(std::span<const int32_t> lengths, int ranks,
                                                int64_t max_tokens);

}  // namespace mtrain
