// RMSNorm of one row [n]: y = w * x * rstd, rstd = 1/sqrt(mean(x²) + eps) (Zhang & Sennrich 2019,
// arXiv:1910.07467). `w` is a function of the index (mtrain/kernel/norm_weight.h). `y` may alias
// `x`, `dx` may alias `dy`. Stateless.
#pragma once
#include <cmath>

#include "mtrain/base/float16.h"
#include "mtrain/kernel/team.h"

namespace mtrain {

template <class Team, class X, class Weight, class Y>
MT_HD void rms_norm_row(Team team, X x, Weight w, Y y, float* rstd, int64_t n, float eps) {
  float ss = team.sum(n, [&](auto i) { return square(to_float(x[i])); });
  float r = 1.0f / std::sqrt(ss / static_cast<float>(n) + eps);
  team.once([&] { *rstd = r; });
  team.each(n, [&](auto i) { y[i] = RowValue<Y>(to_float(x[i]) * r * w(i)); });
}

/// dx (+)= rstd * (dy*w - x * rstd² * mean(dy*w*x)).
template <class Team, class Dy, class X, class Weight, class Dx>
MT_HD void rms_norm_row_backward(Team team, Dy dy, X x, Weight w, float rstd, Dx dx, int64_t n,
                                 bool accumulate) {
  using T = RowValue<Dx>;
  float s = team.sum(n, [&](auto i) { return to_float(dy[i]) * w(i) * to_float(x[i]); });
  float c = s / static_cast<float>(n) * rstd * rstd * rstd;
  auto at = [&](auto i) { return to_float(dy[i]) * w(i) * rstd - to_float(x[i]) * c; };
  if (accumulate)
    team.each(n, [&](auto i) { dx[i] = T(to_float(dx[i]) + at(i)); });
  else
    team.each(n, [&](auto i) { dx[i] = T(at(i)); });
}

/// Contribution of one row: dw[i] += dy[i] * x[i] * rstd.
template <class Team, class T>
MT_HD void rms_norm_row_dw(Team team, const T* dy, const T* x, float rstd, float* dw, int64_t n) {
  team.each(n, [&](int64_t i) { dw[i] += to_float(dy[i]) * to_float(x[i]) * rstd; });
}

}  // namespace mtrain
