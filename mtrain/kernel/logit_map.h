// Maps the results x of the head's matrix product to logits z: the identity, z = scale * x, or a
// soft cap z = cap * tanh(scale * x / cap) (Gemma Team 2024, arXiv:2408.00118). Stateless;
// thread-safe.
#pragma once
#include "mtrain/kernel/math.h"

namespace mtrain {

/// `value` is z; `slope` is dz/dx, from z.
struct PlainLogits {
  MT_HD float value(float x) const { return x; }
  MT_HD float slope(float) const { return 1.0f; }
};
struct ScaledLogits {
  float scale;
  MT_HD float value(float x) const { return scale * x; }
  MT_HD float slope(float) const { return scale; }
};
struct CappedLogits {
  float scale, cap;
  MT_HD float value(float x) const { return cap * tanh_fast(scale * x / cap); }
  MT_HD float slope(float z) const { return scale * (1.0f - (z / cap) * (z / cap)); }
};

/// Calls f with the map (LogitMap of mtrain/tensor/kernel_table.h).
template <class Map, class F>
MT_HD auto with_logits(const Map& map, F&& f) {
  if (map.cap != 0) return f(CappedLogits{map.scale, map.cap});
  if (map.scale != 1) return f(ScaledLogits{map.scale});
  return f(PlainLogits{});
}

}  // namespace mtrain
