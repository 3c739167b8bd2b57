// Computes the norm of each row of w + s·b·a without that sum: its square is ‖w‖² + 2 <w aᵀ, s b> +
// <s b (a aᵀ), s b>, from low-rank matrix products in float. For weight-decomposed adapters (DoRA:
// Liu et al. 2024, arXiv:2402.09353), whose gradient treats these norms as constants. For the
// rank's own thread.
#pragma once
#include <memory>

#include "mtrain/autograd/adapter_ops.h"
#include "mtrain/nn/parameter.h"

namespace mtrain {

class MT_API AdaptedNorms {
 public:
  /// `weight` [N,D] must outlive it. `adapted`: float [N], 1 for the rows that have an adapter, 0
  /// for others; undefined: all have one.
  AdaptedNorms(ExecutionContext& ctx, const Parameter& weight, const Tensor& adapted_N);
  /// The gain m / ‖w + s·b·a‖ of each row of this rank, for scale_columns() with v = m - ‖w‖; 1 for
  /// rows without an adapter. a [R,D], sharded like the columns of w; `b`: s·b, float [N,R].
  /// Collective over the ranks that share the columns of w.
  ColumnGain gain(const Tensor& a_RD, const Tensor& b_NR) const;

 private:
  struct Norms {
    Tensor squares, norms;  // of the rows of w, float [N]; undefined: not computed yet
  };
  /// The weight's values in this rank's memory, dequantized where it is stored as codes.
  Tensor values(DType dtype) const;
  Norms of_weight(const Tensor& w_ND) const;
  Tensor sum_over_columns(const Tensor& x_N) const;

  const Parameter* weight_;
  Tensor numbers_;                 // int32, 0 … N-1
  Tensor adapted_, others_;        // others: 1 - adapted
  std::shared_ptr<Norms> frozen_;  // of a weight that is not trained
};

}  // namespace mtrain
