// Packing: puts several short sequences into one sample. Pure functions; safe from any thread.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain::finetune {

/// Which items share a sample: pack p has items[begin[p]] … items[begin[p + 1] - 1].
struct Packs {
  std::vector<int32_t> items;
  std::vector<int64_t> begin{0};
  int64_t size() const { return static_cast<int64_t>(begin.size()) - 1; }
  std::span<const int32_t> operator[](int64_t pack) const {
    const auto at = static_cast<size_t>(pack);
    return std::span(items).subspan(static_cast<size_t>(begin[at]),
                                    static_cast<size_t>(begin[at + 1] - begin[at]));
  }
};

/// First fit, longest first (Johnson 1973): each item, from the longest on, goes into the first
/// pack with room for it. Needs at most 11/9 n + 6/9 packs, where n is the smallest possible number
/// of packs (Dósa 2007).
/// Items of equal length keep the order of their indices. O(n log n). REQUIRES: 0 < length <=
/// capacity.
MT_API Packs pack_first_fit_decreasing(std::span<const int32_t> lengths, int32_t capacity);
/// One item per pack.
MT_API Packs pack_singly(int64_t count);

}  // namespace mtrain::finetune
