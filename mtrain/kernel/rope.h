// Rotary position embedding of one head, in place: the pair (i, i + half) turns by its token's
// angle (Su et al. 2021, arXiv:2104.09864; half-split layout). Turning by the negative angle undoes
// it, which is also the backward pass.
#pragma once
#include "mtrain/base/float16.h"
#include "mtrain/kernel/team.h"

namespace mtrain {

/// `cos` and `sin` are the position's rows of [half]; `direction` is +1, or -1 to turn back.
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

}  // namespace mtrain
