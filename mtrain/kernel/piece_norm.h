// RMSNorm of a row that is not contiguous: all query or key heads of a token in a fused projection,
// as OLMo 2 normalizes them (arXiv:2501.00656, §3.1). The row's sums are arguments, because its
// other elements may be on other ranks. Stateless.
#pragma once
#include <cmath>

#include "mtrain/base/float16.h"
#include "mtrain/kernel/team.h"

namespace mtrain {

/// A row of `count` pieces of `cols` elements; piece p starts at element p * stride. Arrays in the
/// order of the row are contiguous.
struct Pieces {
  int64_t count, cols, stride;
};

/// The sum of squares of the row.
template <class Team, class T>
MT_HD float pieces_squares(Team team, const T* x, Pieces row) {
  float total = 0;
  for (int64_t p = 0; p < row.count; ++p) {
    const T* piece = x + p * row.stride;
    total += team.sum(row.cols, [&](int64_t i) { return square(to_float(piece[i])); });
  }
  return total;
}

/// The sum of dy*w*x; w and x [count * cols].
template <class Team, class T>
MT_HD float pieces_dots(Team team, const T* dy, const T* x, const T* w, Pieces row) {
  float total = 0;
  for (int64_t p = 0; p < row.count; ++p, x += row.cols, w += row.cols) {
    const T* piece = dy + p * row.stride;
    total += team.sum(
        row.cols, [&](int64_t i) { return to_float(piece[i]) * to_float(w[i]) * to_float(x[i]); });
  }
  return total;
}

/// y = w * x * rstd in place, rstd = 1/sqrt(squares / width + eps); `kept` receives x unless it is
/// null.
template <class Team, class T>
MT_HD void pieces_rms_norm(Team team, T* x, T* kept, const T* w, float* rstd, float squares,
                           int64_t width, float eps, Pieces row) {
  float r = 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
  team.once([&] { *rstd = r; });
  for (int64_t p = 0; p < row.count; ++p, w += row.cols) {
    T* piece = x + p * row.stride;
    if (kept) {
      T* copy = kept + p * row.cols;
      team.each(row.cols, [&](int64_t i) { copy[i] = piece[i]; });
    }
    team.each(row.cols, [&](int64_t i) { piece[i] = T(to_float(piece[i]) * r * to_float(w[i])); });
  }
}

/// dx = rstd * (dy*w - x * rstd² * dots / width), in place of dy.
template <class Team, class T>
MT_HD void pieces_rms_norm_backward(Team team, T* dy, const T* x, const T* w, float rstd,
                                    float dots, int64_t width, Pieces row) {
  float c = dots / static_cast<float>(width) * rstd * rstd * rstd;
  for (int64_t p = 0; p < row.count; ++p, x += row.cols, w += row.cols) {
    T* piece = dy + p * row.stride;
    team.each(row.cols, [&](int64_t i) {
      piece[i] = T(to_float(piece[i]) * to_float(w[i]) * rstd - to_float(x[i]) * c);
    });
  }
}

}  // namespace mtrain
