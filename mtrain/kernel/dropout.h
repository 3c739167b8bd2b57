// Dropout: y = x * keep / (1 - p). `keep` is drawn from the counter-based generator at the
// element's global index, so the backward pass and every parallel layout get the same mask
// (Srivastava et al. 2014, JMLR 15). Stateless; thread-safe.
#pragma once
#include "mtrain/base/rng.h"

namespace mtrain {

/// The factor of an element: `scale` if it is kept, 0 if it is dropped. `scale` is 1/(1-p), or 0
/// for p >= 1.
MT_HD float dropout_factor(const RngStream& rng, int64_t index, float p, float scale) {
  return rng.uniform(static_cast<uint64_t>(index)) >= p ? scale : 0.0f;
}

}  // namespace mtrain
