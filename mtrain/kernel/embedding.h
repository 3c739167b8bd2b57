// Embedding of one token: copies a row [n] of the table; backward adds to the row's gradient.
// Stateless.
#pragma once
#include "mtrain/base/float16.h"
#include "mtrain/kernel/team.h"

namespace mtrain {

template <class Team, class T>
MT_HD void embedding_row(Team team, const T* table_row, T* y, int64_t n) {
  team.each(n, [&](int64_t i) { y[i] = table_row[i]; });
}

/// d_row[i] += dy[i]. The caller adds tokens with the same id one after another.
template <class Team, class T>
MT_HD void embedding_row_backward(Team team, const T* dy, float* d_row, int64_t n) {
  team.each(n, [&](int64_t i) { d_row[i] += to_float(dy[i]); });
}

}  // namespace mtrain
