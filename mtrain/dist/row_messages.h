// An all-gather and a reduce-scatter of rows as one message between each two ranks, so that a piece
// can be worked on while others travel. What is sent and added up, and in which order, is that of
// the collectives. For the rank's own thread; refers to the axis. Rehearsals take the memory and
// move nothing.
#pragma once
#include <vector>

#include "mtrain/dist/mesh.h"
#include "mtrain/tensor/run.h"

namespace mtrain {

/// The rank `step` places behind another in the circle of all: the order in which ranks work on
/// pieces.
inline int circle(int first, int step, int size) { return (first + step) % size; }

/// Rows [rank * rows, (rank + 1) * rows) of a whole.
inline Tensor rows_of_rank(const Tensor& whole, int rank, int size) {
  int64_t rows = whole.size(0) / size;
  return whole.slice(0, rows * rank, rows * (rank + 1));
}

class PiecewiseAllGather {
 public:
  /// Begins: `mine` goes to every rank, and theirs to their places in `whole`.
  PiecewiseAllGather(Run& run, const Axis& axis, const Tensor& mine, const Tensor& whole);
  /// Returns when the piece of `rank` is there.
  void wait(int rank);
  /// Returns when all pieces are there and this rank's own has gone.
  void finish();

 private:
  Tensor whole_;
  std::vector<Pending> come_, gone_;  // by rank
};

class PiecewiseReduceScatter {
 public:
  /// Begins: summands of this rank's piece, of this form, are expected from every rank.
  PiecewiseReduceScatter(Run& run, const Axis& axis, const Shape& piece, DType dtype);
  /// A summand of the piece of another rank goes there. It is kept until it has gone.
  void send(int rank, const Tensor& summand);
  /// The sum of all ranks' summands of this rank's piece, in the order of ranks, rounded once.
  Tensor finish(const Tensor& own);

 private:
  void add_on_host(const Tensor& sum) const;
  void add_on_device(const Tensor& sum) const;

  Run& run_;
  const Axis& axis_;
  std::vector<Tensor> summands_, sent_;  // by rank
  std::vector<Pending> come_, gone_;
};

}  // namespace mtrain
