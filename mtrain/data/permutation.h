// Permutation: a random order of [0, size) as a function of the index, without a table. A Feistel
// network of six rounds with Philox as its round function, iterated until the result is in the
// range (Black & Rogaway 2002, "Ciphers with arbitrary finite domains"). A value; safe from any
// thread.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "mtrain/base/rng.h"

namespace mtrain {

class Permutation {
 public:
  /// The order is a function of `seed`, `stream` and `step`. REQUIRES: size > 0.
  Permutation(int64_t size, uint64_t seed, uint64_t stream, uint64_t step)
      : size_(static_cast<uint64_t>(size)),
        half_((std::max(static_cast<int>(std::bit_width(size_ - 1)), kLeastBits) + 1) / 2),
        key_(philox(seed ^ stream, step, 0x7065726d)) {}

  int64_t operator()(int64_t index) const {
    auto value = static_cast<uint64_t>(index);
    do value = mixed(value);
    while (value >= size_);
    return static_cast<int64_t>(value);
  }

 private:
  static constexpr int kLeastBits = 8;  // a network with fewer bits is biased

  uint64_t mixed(uint64_t value) const {
    const uint64_t mask = (uint64_t{1} << half_) - 1, key = key_[0] | uint64_t{key_[1]} << 32;
    uint64_t left = value >> half_, right = value & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const auto words = philox(key, right, round | uint64_t{key_[2]} << 32);
      const uint64_t next = left ^ ((words[0] | uint64_t{words[1]} << 32) & mask);
      left = right;
      right = next;
    }
    return left << half_ | right;
  }

  uint64_t size_;
  int half_;  // bits
  std::array<uint32_t, 4> key_;
};

}  // namespace mtrain
