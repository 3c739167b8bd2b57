// LayerNorm of one row [n]: y = w * (x - mean) * rstd + b, rstd = 1/sqrt(variance + eps) with the
// biased variance (Ba et al. 2016, arXiv:1607.06450). `w` is a function of the index
// (mtrain/kernel/norm_weight.h). `y` may alias `x`, `dx` may alias `dy`. Stateless.
#pragma once
#include <cmath>

#include "mtrain/base/float16.h"
#include "mtrain/kernel/team.h"

namespace mtrain {

/// `b` may be null. The variance uses a second pass, so that a large mean causes no cancellation.
template <class Team, class X, class Weight, class Bias, class Y>
MT_HD void layer_norm_row(Team team, X x, Weight w, Bias b, Y y, float* mean, float* rstd,
                          int64_t n, float eps) {
  using T = RowValue<Y>;
  float m = team.sum(n, [&](auto i) { return to_float(x[i]); }) / static_cast<float>(n);
  float ss = team.sum(n, [&](auto i) { return square(to_float(x[i]) - m); });
  float r = 1.0f / std::sqrt(ss / static_cast<float>(n) + eps);
  team.once([&] {
    *mean = m;
    *rstd = r;
  });
  if (b)
    team.each(n, [&](auto i) { y[i] = T((to_float(x[i]) - m) * r * w(i) + to_float(b[i])); });
  else
    team.each(n, [&](auto i) { y[i] = T((to_float(x[i]) - m) * r * w(i)); });
}

/// dx (+)= rstd * (g - mean(g) - xhat * mean(g*xhat)), g = dy*w, xhat = (x - mean)*rstd.
template <class Team, class Dy, class X, class Weight, class Dx>
MT_HD void layer_norm_row_backward(Team team, Dy dy, X x, Weight w, float mean, float rstd, Dx dx,
                                   int64_t n, bool accumulate) {
  using T = RowValue<Dx>;
  auto xhat = [&](auto i) { return (to_float(x[i]) - mean) * rstd; };
  auto g = [&](auto i) { return to_float(dy[i]) * w(i); };
  Pair s = team.sum2(n, [&](auto i) { return Pair{g(i), g(i) * xhat(i)}; });
  float g_mean = s.first / static_cast<float>(n), gx_mean = s.second / static_cast<float>(n);
  auto at = [&](auto i) { return rstd * (g(i) - g_mean - xhat(i) * gx_mean); };
  if (accumulate)
    team.each(n, [&](auto i) { dx[i] = T(to_float(dx[i]) + at(i)); });
  else
    team.each(n, [&](auto i) { dx[i] = T(at(i)); });
}

/// Contribution of one row: dw[i] += dy[i] * xhat[i].
template <class Team, class T>
MT_HD void layer_norm_row_dw(Team team, const T* dy, const T* x, float mean, float rstd, float* dw,
                             int64_t n) {
  team.each(n, [&](int64_t i) { dw[i] += to_float(dy[i]) * ((to_float(x[i]) - mean) * rstd); });
}

}  // namespace mtrain
