// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC'11). A draw is a pure function of (seed, stream name, step, global index). There is
// no state to save, and an element gets the same number for any parallel layout, thread count and
// order of evaluation. Stateless; thread-safe.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

/// 64-bit FNV-1a of a name, followed by a mixer so that similar names give unrelated keys.
constexpr uint64_t name_key(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdull;
  h ^= h >> 33;
  return h;
}

/// Ten rounds of Philox on a 128-bit counter with a 64-bit key.
MT_HD std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_lo, uint64_t counter_hi) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  std::array<uint32_t, 4> c = {
      static_cast<uint32_t>(counter_lo), static_cast<uint32_t>(counter_lo >> 32),
      static_cast<uint32_t>(counter_hi), static_cast<uint32_t>(counter_hi >> 32)};
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

/// One named stream of random numbers, addressed by global element index.
class RngStream {
 public:
  MT_HD RngStream(uint64_t seed, uint64_t name, uint64_t step = 0)
      : key_(seed ^ (name * 0x9E3779B97F4A7C15ull)), step_(step) {}
  RngStream(uint64_t seed, std::string_view name, uint64_t step = 0)
      : RngStream(seed, name_key(name), step) {}

  /// Four independent 32-bit words for one index.
  MT_HD std::array<uint32_t, 4> words(uint64_t index) const { return philox(key_, index, step_); }
  /// Uniform in [0, 1) with 24 random bits.
  MT_HD float uniform(uint64_t index) const {
    return static_cast<float>(words(index)[0] >> 8) * 0x1p-24f;
  }
  /// Standard normal by Box–Muller; |value| < 6.77.
  float normal(uint64_t index) const {
    auto w = words(index);
    double u = (static_cast<double>(w[0]) + 0.5) * 0x1p-32, v = static_cast<double>(w[1]) * 0x1p-32;
    return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
  }

 private:
  uint64_t key_, step_;
};

}  // namespace mtrain
