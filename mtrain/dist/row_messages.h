// An all-gather and a reduce-scatter of rows as one message per pair of ranks, so that a rank can
// compute on one shard while others are in transfer. They send and sum the same data in the same
// order as the collectives. The classes are for the rank's own thread and do not own the axis. Dry
// runs allocate the memory and move nothing.
#pragma once
#include <vector>

#include "mtrain/dist/mesh.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {

/// The rank `step` places after `first` in the ring of all ranks: the order in which ranks process
/// shards.
inline int ring_index(int first, int step, int size) { return (first + step) % size; }

/// Rows [rank * rows, (rank + 1) * rows) of `whole`, as a view.
inline Tensor rows_of_rank(const Tensor& whole, int rank, int size) {
  int64_t rows = whole.size(0) / size;
  return whole.slice(0, rows * rank, rows * (rank + 1));
}

class PiecewiseAllGather {
 public:
  /// Starts: sends `mine` [T/n, D] to every rank, and receives the other shards into their places
  /// in `whole` [T, D].
  PiecewiseAllGather(ExecutionContext& ctx, const Axis& axis, const Tensor& mine,
                     const Tensor& whole);
  /// Returns when the shard of `rank` has arrived.
  void wait(int rank);
  /// Returns when all shards have arrived and this rank's own shard is sent.
  void finish();

 private:
  Tensor whole_;
  std::vector<Pending> come_, gone_;  // by rank
};

class PiecewiseReduceScatter {
 public:
  /// Starts: expects partial sums of this rank's shard, with this shape and dtype, from every rank.
  PiecewiseReduceScatter(ExecutionContext& ctx, const Axis& axis, const Shape& piece, DType dtype);
  /// Sends a partial sum of another rank's shard to that rank; keeps it alive until it is sent.
  void send(int rank, const Tensor& summand);
  /// The sum of all ranks' partial sums of this rank's shard, in the order of ranks, rounded once.
  Tensor finish(const Tensor& own);

 private:
  void add_on_host(const Tensor& sum) const;
  void add_on_device(const Tensor& sum) const;

  ExecutionContext& ctx_;
  const Axis& axis_;
  std::vector<Tensor> summands_, sent_;  // by rank
  std::vector<Pending> come_, gone_;
};

}  // namespace mtrain
