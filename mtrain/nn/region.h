// Region: the part of a block whose activations are sharded over tensor-parallel ranks. `project`
// and `enter` gather the residual stream on every rank, `leave` sums the ranks' results; everything
// in between is local. On one rank, enter and leave are the identity. A value that refers to its
// model's ParallelContext and BlockPlan; for its rank's own thread.
#pragma once
#include <array>
#include <span>

#include "mtrain/dist/overlapped_linear.h"
#include "mtrain/nn/scope.h"

namespace mtrain {

class Adapter;

/// A layer at the start of a region. `adapter`: not owned; null: none.
struct Projection {
  LinearWeights weights;
  const Adapter* adapter = nullptr;
};

class MT_API Region {
 public:
  /// `shared_input`: ops after project() read its input, which is then not released.
  explicit Region(const Scope& scope, bool shared_input = false)
      : parallel_(&scope.parallel()), plan_(&scope.blocks()), shared_input_(shared_input) {}

  /// Whether activations are sharded.
  bool sharded() const { return active_axis(parallel_->tp) != nullptr; }
  /// Stream -> R: I -> R, or S(0) -> R under sequence parallelism.
  Tensor enter(const Tensor& x_TD) const;
  /// The ids, positions or targets of the tokens that this rank holds of the stream.
  Tensor own_tokens(const Tensor& ids_T) const;
  /// P -> stream.
  Tensor leave(const Tensor& x_TD) const;

  /// The projections at the start of a region: y_i [T,N_i] = enter(normed) · w_iᵀ + b_i.
  ///   auto [gate, up] = region.project(norm(x_TD), {gate_, up_});
  /// With comm_overlap.tp, the products of rows that have arrived run while other rows are in
  /// transfer; low-precision products wait for all rows, because their scales depend on all rows,
  /// and so do layers with adapters. With model.recompute_modules=[layernorm] the memory of
  /// `normed_TD`, or of its gathered copy, is released until backward, which recomputes the norm.
  /// Therefore no op after this call may read the norm's output, unless the Region was constructed
  /// with `shared_input`.
  template <size_t N>
  std::array<Tensor, N> project(const Tensor& normed_TD, const Projection (&layers)[N]) const {
    std::array<Tensor, N> y_TN;
    project(normed_TD, layers, y_TN);
    return y_TN;
  }
  /// With model.recompute_modules=[layernorm], releases the memory of `normed_TD` until backward.
  /// For norms whose output is read by other ops than project(): call it after all of them have
  /// run; `y` is the result of one of them.
  Tensor release_norm(const Tensor& y, const Tensor& normed_TD) const;
  /// leave(x · wᵀ), with its exchange overlapped in the same way.
  Tensor leave(const Tensor& x_TK, const Tensor& w_NK,
               const QuantizedProducts* quantized = nullptr) const;

 private:
  void project(const Tensor& normed_TD, std::span<const Projection> layers,
               std::span<Tensor> y_TN) const;
  GatheredProducts gather(const Tensor& x_TD, std::span<const Projection> layers) const;
  bool overlaps() const {
    return sharded() && parallel_->sequence_parallel && parallel_->overlap_tp;
  }
  const ParallelContext* parallel_;
  const BlockPlan* plan_;
  bool shared_input_;
};

}  // namespace mtrain
