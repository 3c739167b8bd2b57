// Region: the part of a block whose activations are cut over tensor-parallel ranks. `enter` makes
// of the residual stream what every rank needs whole, `leave` adds up what the ranks made of it;
// between the two everything is local. On one rank both are the identity. A value that refers to
// its model's ParallelContext.
#pragma once
#include <span>

#include "mtrain/dist/overlapped_linear.h"
#include "mtrain/nn/scope.h"

namespace mtrain {

class MT_API Region {
 public:
  explicit Region(const Scope& scope) : parallel_(&scope.parallel()) {}

  /// Whether activations are cut here at all.
  bool cut() const { return cutting(parallel_->tp) != nullptr; }
  /// Stream -> R: I -> R, or S(0) -> R under sequence parallelism.
  Tensor enter(const Tensor& x_TD) const;
  /// A token's id, position or target, of those tokens that this rank has of the stream.
  Tensor own_tokens(const Tensor& ids_T) const;
  /// P -> stream.
  Tensor leave(const Tensor& x_TD) const;

  /// enter(x), and what each of the layers makes of it. With comm_overlap.tp they work on what has
  /// come while the rest travels; then nothing else may read the entered stream. Products in small
  /// types wait for all of it: their scales do.
  GatheredProducts enter(const Tensor& x_TD, std::span<const LinearWeights> layers) const;
  /// leave(x · wᵀ), likewise.
  Tensor leave(const Tensor& x_TK, const Tensor& w_NK,
               const QuantizedProducts* quantized = nullptr) const;

 private:
  bool overlaps() const { return cut() && parallel_->sequence && parallel_->overlap_tp; }
  const ParallelContext* parallel_;
};

}  // namespace mtrain
