// Region: the part of a block whose activations are cut over tensor-parallel ranks. `enter` makes of the residual stream what
// every rank needs whole, `leave` adds up what the ranks made of it; between the two everything is local. On one rank both are
// the identity. A value that refers to its model's ParallelContext.
#pragma once
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

 private:
  const ParallelContext* parallel_;
};

}  // namespace mtrain
