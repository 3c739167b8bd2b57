// Rotary position embedding of one head, in place: rotates the pair (i, i + half), or (2i, 2i + 1),
// by the angle of its token's position (Su et al. 2021, arXiv:2104.09864). Rotation by the
// negative angle is the inverse and also the backward pass. Stateless.
#pragma once
#include "mtrain/base/float16.h"
#include "mtrain/kernel/team.h"

namespace mtrain {

/// x [2 * half]; `cos` and `sin` [half] are the rows of the token's position; `direction` is +1, or
/// -1 for the inverse.
template <class Team, class T>
MT_HD void rope_head(Team team, T* x, const float* cos, const float* sin, int64_t half,
                     float direction) {
  T* upper = x + half;
  team.each(half, [&](int64_t i) {
    float a = to_float(x[i]), b = to_float(upper[i]), c = cos[i], s = sin[i] * direction;
    x[i] = T(a * c - b * s);
    upper[i] = T(b * c + a * s);
  });
}

/// The same for pairs of adjacent elements.
template <class Team, class T>
MT_HD void rope_head_interleaved(Team team, T* x, const float* cos, const float* sin, int64_t half,
                                 float direction) {
  team.each(half, [&](int64_t i) {
    float a = to_float(x[2 * i]), b = to_float(x[2 * i + 1]), c = cos[i], s = sin[i] * direction;
    x[2 * i] = T(a * c - b * s);
    x[2 * i + 1] = T(b * c + a * s);
  });
}

}  // namespace mtrain
