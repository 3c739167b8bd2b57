// Tensors of all ranks of an axis at once, in double on the host: the plain definition of each
// placement. Stateless.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "contract/harness.h"
#include "mtrain/tensor/placement.h"

namespace mtrain::placed {

using contract::Values;

/// A tensor as one holds it.
struct Held {
  Shape shape;
  Values values;
  bool operator==(const Held&) const = default;
};
using ByRank = std::vector<Held>;

/// Whole numbers in [-4, 4], so that sums are exact in every dtype.
inline Held whole_numbers(const Shape& shape, std::string_view key) {
  Held out{shape, contract::random_values(shape.numel(), key, 2)};
  for (double& v : out.values) v = std::clamp(std::round(v), -4.0, 4.0) + 0.0;
  return out;
}

/// Piece `rank` of n along a dim.
inline Held piece(const Held& whole, int dim, int n, int rank) {
  Held out{whole.shape, {}};
  out.shape[dim] /= n;
  // Visits the whole in order and keeps the elements of the piece, without the op's arithmetic of
  // runs.
  for (int64_t i = 0; i < whole.shape.numel(); ++i) {
    int64_t inner = 1;
    for (int d = dim + 1; d < whole.shape.rank(); ++d) inner *= whole.shape[d];
    int64_t at = i / inner % whole.shape[dim];
    if (at / out.shape[dim] == rank) out.values.push_back(whole.values[static_cast<size_t>(i)]);
  }
  return out;
}

/// The parts of n ranks for a tensor with this placement; partial sums are whole numbers drawn from
/// `key`.
inline ByRank place(const Held& whole, Placement p, int n, std::string_view key) {
  ByRank out(static_cast<size_t>(n), whole);
  for (int rank = 0; rank < n && p.letter() == Placement::Letter::S; ++rank)
    out[static_cast<size_t>(rank)] = piece(whole, p.dim(), n, rank);
  for (int rank = 1; rank < n && p.letter() == Placement::Letter::P; ++rank) {
    Held& mine = out[static_cast<size_t>(rank)] = whole_numbers(whole.shape, cat(key, rank));
    for (size_t i = 0; i < mine.values.size(); ++i) out[0].values[i] -= mine.values[i];
  }
  return out;
}

/// True if the parts of the ranks are bit-identical to `whole` with this placement.
inline bool is_placed(const ByRank& held, const Held& whole, Placement p) {
  int n = static_cast<int>(held.size());
  if (p.letter() == Placement::Letter::P) {
    Held sum = held[0];
    for (size_t rank = 1; rank < held.size(); ++rank) {
      if (held[rank].shape != whole.shape) return false;
      for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += held[rank].values[i];
    }
    return sum == whole;
  }
  for (int rank = 0; rank < n; ++rank) {
    bool split = p.letter() == Placement::Letter::S;
    if (held[static_cast<size_t>(rank)] != (split ? piece(whole, p.dim(), n, rank) : whole))
      return false;
  }
  return true;
}

/// The inner product <gradient, value> of the whole, from the parts of both: the tensor has
/// placement p, its gradient dual(p).
inline double pairing(const ByRank& values, const ByRank& gradients, Placement p) {
  double sum = 0;
  for (size_t rank = 0; rank < values.size(); ++rank)
    for (size_t i = 0; i < values[rank].values.size(); ++i)
      sum += values[rank].values[i] * gradients[rank].values[i];
  // All ranks hold the same product where both value and gradient are whole.
  return p == Placement::I() ? sum / static_cast<double>(values.size()) : sum;
}

}  // namespace mtrain::placed
