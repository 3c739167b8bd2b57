// Conversion of a row [n] with a factor: dst = scale * src (+ dst if `accumulate`), computed in
// float. Stateless.
#pragma once
#include "mtrain/base/float16.h"
#include "mtrain/kernel/team.h"

namespace mtrain {

template <class Team, class S, class D>
MT_HD void cast_row(Team team, const S* src, D* dst, int64_t n, float scale, bool accumulate) {
  if (accumulate)
    team.each(n, [&](int64_t i) { dst[i] = D(to_float(dst[i]) + scale * to_float(src[i])); });
  else if (scale == 1.0f)
    team.each(n, [&](int64_t i) { dst[i] = D(to_float(src[i])); });
  else
    team.each(n, [&](int64_t i) { dst[i] = D(scale * to_float(src[i])); });
}

}  // namespace mtrain
