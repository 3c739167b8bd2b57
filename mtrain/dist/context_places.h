// Dynamic context parallelism: how many ranks each sequence of a micro-batch takes, and which.
// Every rank works out the same. Stateless.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

/// Ranks [first, first + ranks) of the axis; first is a multiple of ranks.
struct ContextPlace {
  int first = 0, ranks = 1;
  bool operator==(const ContextPlace&) const = default;
};

/// A place for each sequence. Its size is the smallest of 1, …, `ranks` (each a multiple of the one
/// before) that leaves no rank more than `max_tokens` of it; the longest are placed first, each
/// where there are fewest rows yet. No rank then has more than max_tokens and a token per sequence
/// beyond its share of all. While there are ranks without rows, the sequence with most tokens on a
/// rank takes the next size.
MT_API std::vector<ContextPlace> context_places(std::span<const int32_t> lengths, int ranks,
                                                int64_t max_tokens);

}  // namespace mtrain
