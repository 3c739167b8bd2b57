// NumpyRandom: generator and shuffle with exactly the results of numpy's RandomState, which define
// Megatron's sample order. MT19937 (Matsumoto & Nishimura 1998) seeded by its init_genrand, 32 bits
// per draw; integers by masking and rejection; shuffle by Fisher–Yates from the end. A value. Not
// synchronised: one thread at a time.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace mtrain {

class NumpyRandom {
 public:
  explicit NumpyRandom(uint32_t seed) : engine_(seed) {}

  uint32_t next32() { return static_cast<uint32_t>(engine_()); }
  /// Uniform in [0, max], with the same draws as numpy.
  uint64_t interval(uint64_t max) {
    if (max == 0) return 0;
    const uint64_t mask = ~uint64_t{0} >> std::countl_zero(max);  // the smallest 2^k - 1 >= max
    for (;;) {
      uint64_t value = next32();
      if (max > UINT32_MAX) value = value << 32 | next32();
      value &= mask;
      if (value <= max) return value;
    }
  }
  /// Draws one block of numbers before it swaps, to prefetch scattered memory.
  template <class T>
  void shuffle(std::span<T> values) {
    std::array<uint64_t, 64> picks;
    for (size_t left = values.size(); left > 1;) {
      const size_t count = std::min(picks.size(), left - 1);
      for (size_t k = 0; k < count; ++k) {
        picks[k] = interval(left - 1 - k);
        __builtin_prefetch(&values[picks[k]], 1);
      }
      for (size_t k = 0; k < count; ++k) std::swap(values[left - 1 - k], values[picks[k]]);
      left -= count;
    }
  }

 private:
  std::mt19937
      engine_;  // the C++ standard requires the seeding and output of the reference implementation
};

}  // namespace mtrain
