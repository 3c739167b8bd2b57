// Dropout of attention weights: a weight is kept with probability 1 - p and then divided by it.
// Whether it is kept is a function of (seed, name, step, head, query, key), with the indices of
// head and tokens in the whole model and batch, so backward and every parallel layout get the same
// mask. Stateless; thread-safe.
#pragma once
#include <cstdint>

#include "mtrain/base/rng.h"

namespace mtrain {

struct AttentionDropout {
  float p = 0;  // 0: no dropout
  uint64_t seed = 0, name_key = 0, step = 0;
  int64_t first_head = 0;  // index of the call's head 0 among the heads of the whole model
  const int64_t* first_tokens =
      nullptr;  // [sequences], on the host: index of the first query of each sequence or span
};

/// The masks of one head.
class AttentionKeep {
 public:
  MT_HD AttentionKeep(const AttentionDropout& d, int64_t head)
      : rng_(d.seed, d.name_key + static_cast<uint64_t>(d.first_head + head + 1), d.step),
        p_(d.p),
        scale_(1.0f / (1.0f - d.p)) {}
  /// The factor of a weight: 1/(1-p) or 0. One draw serves four adjacent keys.
  MT_HD float factor(int64_t query, int64_t key) const {
    return factor_of(words(query, key)[static_cast<size_t>(key & 3)]);
  }
  /// The factors of keys [first, first + count).
  MT_HD void row(int64_t query, int64_t first, int64_t count, float* factors) const {
    for (int64_t i = 0; i < count;) {
      std::array<uint32_t, 4> four = words(query, first + i);
      do {
        factors[i] = factor_of(four[static_cast<size_t>((first + i) & 3)]);
        ++i;
      } while (i < count && ((first + i) & 3) != 0);
    }
  }

 private:
  MT_HD std::array<uint32_t, 4> words(int64_t query, int64_t key) const {
    return rng_.words(static_cast<uint64_t>(query) << 32 |
                      static_cast<uint64_t>(static_cast<uint32_t>(key >> 2)));
  }
  MT_HD float factor_of(uint32_t word) const {
    return static_cast<float>(word >> 8) * 0x1p-24f >= p_ ? scale_ : 0.0f;
  }
  RngStream rng_;
  float p_, scale_;
};

}  // namespace mtrain
