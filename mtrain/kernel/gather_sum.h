// One term of a weighted sum of gathered rows [n], and the dot products that are the gradients of
// the weights. A negative row number means "no row". Stateless.
#pragma once
#include "mtrain/base/float16.h"
#include "mtrain/kernel/team.h"

namespace mtrain {

/// sums[i] += w * row[i].
template <class Team, class T>
MT_HD void add_scaled_row(Team team, const T* row, float w, float* sums, int64_t n) {
  team.each(n, [&](int64_t i) { sums[i] += w * to_float(row[i]); });
}

/// Σ_j <a, b[source[j]]> with j ascending. a [n], b [any, n], source [fan].
template <class Team, class T>
MT_HD float row_dots_row(Team team, const T* a, const T* b, const int32_t* source, int64_t fan,
                         int64_t n) {
  float total = 0;
  for (int64_t j = 0; j < fan; ++j) {
    if (source[j] < 0) continue;
    const T* row = b + source[j] * n;
    total += team.sum(n, [&](int64_t i) { return to_float(a[i]) * to_float(row[i]); });
  }
  return total;
}

}  // namespace mtrain
