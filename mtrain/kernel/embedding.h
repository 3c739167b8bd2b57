// Embedding of one token: a row's copy, and the addition of its gradient.
#pragma once
#include "mtrain/base/float16.h"
#include "mtrain/kernel/team.h"

namespace mtrain {

template <class Team, class T>
MT_HD void embedding_row(Team team, const T* table_row, T* y, int64_t n) {
  team.each(n, [&](int64_t i) { y[i] = table_row[i]; });
}

/// d_row[i] += dy[i]. Tokens with the same id are added one after another.
template <class Team, class T>
MT_HD void embedding_row_backward(Team team, const T* dy, float* d_row, int64_t n) {
  team.each(n, [&](int64_t i) { d_row[i] += to_float(dy[i]); });
}

}  // namespace mtrain
