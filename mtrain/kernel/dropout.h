// Dropout: y = x * keep / (1 - p), keep drawn from the counter-based generator at the element's
// global index, so that the same mask comes back in the backward pass and in every parallel layout
// (Srivastava et al. 2014, JMLR 15).
#pragma once
#include "mtrain/base/rng.h"

namespace mtrain {

/// 1/(1-p) where the element is kept, 0 where it is dropped. `scale` is 1/(1-p), or 0 for p >= 1.
MT_HD float dropout_factor(const RngStream& rng, int64_t index, float p, float scale) {
  return rng.uniform(static_cast<uint64_t>(index)) >= p ? scale : 0.0f;
}

}  // namespace mtrain
