// Softmax cross-entropy of one row of logits: lse = log Σ exp(logit), loss = lse - logit[target]. Columns
// from `valid` on are vocabulary padding and count as minus infinity.
#pragma once
#include <cmath>
#include <limits>

#include "mtrain/kernel/math.h"
#include "mtrain/kernel/team.h"

namespace mtrain {

/// A target below 0 is ignored (loss 0); one in the padding has probability 0 (loss infinity).
template <class Team, class T>
MT_HD void cross_entropy_row(Team team, const T* logits, int32_t target, int64_t valid, float* loss,
                             float* lse) {
  float top = team.max(valid, [&](int64_t i) { return to_float(logits[i]); });
  float sum = team.sum(valid, [&](int64_t i) { return exp_nonpositive(to_float(logits[i]) - top); });
  team.once([&] {
    float l = top + std::log(sum);
    *lse = l;
    if (target < 0)
      *loss = 0;
    else
      *loss = target < valid ? l - to_float(logits[target]) : std::numeric_limits<float>::infinity();
  });
}

/// d_logits = (exp(logit - lse) - [i == target]) * d_loss; 0 in ignored rows and padding. `d_logits` may be
/// `logits`.
template <class Team, class T>
MT_HD void cross_entropy_row_backward(Team team, const T* logits, int32_t target, int64_t valid, int64_t n,
                                      float lse, float d_loss, T* d_logits) {
  if (target < 0) {
    team.each(n, [&](int64_t i) { d_logits[i] = T(0.0f); });
    return;
  }
  team.each(valid, [&](int64_t i) {
    float p = exp_fast(to_float(logits[i]) - lse);
    d_logits[i] = T((p - (i == target ? 1.0f : 0.0f)) * d_loss);
  });
  team.each(n - valid, [&](int64_t i) { d_logits[valid + i] = T(0.0f); });
}

}  // namespace mtrain
