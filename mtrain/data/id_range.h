// first_outside(): the check of ids and positions that a plugin filled in. Stateless; safe from any
// thread.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace mtrain {

/// The position of the first value outside [low, high); -1 if there is none. REQUIRES: high - low
/// fits in uint32_t.
inline int64_t first_outside(std::span<const int32_t> values, int64_t low, int64_t high) {
  constexpr size_t kBlock = 4096;  // values whose verdicts are combined without a branch
  const auto first = static_cast<uint32_t>(low), count = static_cast<uint32_t>(high - low);
  auto outside = [&](int32_t value) { return static_cast<uint32_t>(value) - first >= count; };
  for (size_t at = 0; at < values.size(); at += kBlock) {
    const auto block = values.subspan(at, std::min(kBlock, values.size() - at));
    uint32_t any = 0;  // compilers turn this loop into vector instructions
    for (const int32_t value : block) any |= outside(value) ? 1U : 0U;
    if (any == 0) continue;
    const auto bad = std::find_if(block.begin(), block.end(), outside);
    return static_cast<int64_t>(at) + (bad - block.begin());
  }
  return -1;
}

}  // namespace mtrain
