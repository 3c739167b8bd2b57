// The weight of a norm: w + offset, in float; a row without weight has the offset alone. Stateless.
#pragma once
#include "mtrain/base/float16.h"

namespace mtrain {

template <class T>
struct PlainWeight {
  const T* w;
  MT_HD float operator()(int64_t i) const { return to_float(w[i]); }
};
/// `w` may be null.
template <class T>
struct OffsetWeight {
  const T* w;
  float offset;
  MT_HD float operator()(int64_t i) const { return w ? to_float(w[i]) + offset : offset; }
};

/// Calls f with the weight as a function of the index.
template <class T, class F>
MT_HD auto with_weight(const T* w, float offset, F&& f) {
  if (w && offset == 0) return f(PlainWeight<T>{w});
  return f(OffsetWeight<T>{w, offset});
}

}  // namespace mtrain
