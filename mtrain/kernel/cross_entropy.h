// Softmax cross-entropy of one row of logits [n]: lse = log Σ exp(logit), loss = lse -
// logit[target]. The logits are map.value(logits) (mtrain/kernel/logit_map.h). Columns >= `valid`
// are vocabulary padding and count as minus infinity. `loss` and `lse` point to one float each.
// Stateless.
#pragma once
#include <cmath>
#include <limits>

#include "mtrain/kernel/math.h"
#include "mtrain/kernel/team.h"

namespace mtrain {

/// A target < 0 is ignored (loss 0); a target in the padding has probability 0 (loss infinity).
template <class Team, class T, class Map>
MT_HD void cross_entropy_row(Team team, const T* logits, Map map, int32_t target, int64_t valid,
                             float* loss, float* lse) {
  auto logit = [&](int64_t i) { return map.value(to_float(logits[i])); };
  float top = team.max(valid, logit);
  float sum = team.sum(valid, [&](int64_t i) { return exp_nonpositive(logit(i) - top); });
  team.once([&] {
    float l = top + std::log(sum);
    *lse = l;
    if (target < 0)
      *loss = 0;
    else
      *loss = target < valid ? l - logit(target) : std::numeric_limits<float>::infinity();
  });
}

/// The same for one shard of a vocabulary-parallel row, which holds columns first … first + n - 1.
/// `lse` covers only these columns and is minus infinity if none is valid. `loss` receives minus
/// the logit of the target, or 0 if the target is in another shard or ignored. The first `valid` of
/// the `n` columns are not padding.
template <class Team, class T, class Map>
MT_HD void cross_entropy_part_row(Team team, const T* logits, Map map, int32_t target,
                                  int64_t first, int64_t valid, int64_t n, float* loss,
                                  float* lse) {
  cross_entropy_row(team, logits, map, -1, valid, loss, lse);
  team.once([&] {
    if (valid <= 0) *lse = -std::numeric_limits<float>::infinity();
    int64_t column = target - first;
    if (target < 0 || column < 0 || column >= n)
      *loss = 0;
    else
      *loss = column < valid ? -map.value(to_float(logits[column]))
                             : std::numeric_limits<float>::infinity();
  });
}

/// d_logits = (exp(logit - lse) - [i == target - first]) * d_loss * slope of the map; 0 in ignored
/// rows and padding. `d_logits` may alias `logits`.
template <class Team, class T, class Map>
MT_HD void cross_entropy_row_backward(Team team, const T* logits, Map map, int32_t target,
                                      int64_t first, int64_t valid, int64_t n, float lse,
                                      float d_loss, T* d_logits) {
  if (target < 0) {
    team.each(n, [&](int64_t i) { d_logits[i] = T(0.0f); });
    return;
  }
  int64_t column = target - first;
  team.each(valid, [&](int64_t i) {
    float logit = map.value(to_float(logits[i])), p = exp_fast(logit - lse);
    d_logits[i] = T((p - (i == column ? 1.0f : 0.0f)) * d_loss * map.slope(logit));
  });
  team.each(n - valid, [&](int64_t i) { d_logits[valid + i] = T(0.0f); });
}

}  // namespace mtrain
