// QuantizedWeights: weights whose value is FP8 codes, made by the ranks that update them, before
// they are gathered: bit by bit what every holder would make of gathered bf16 values. For that the
// largest value of each matrix is found over all ranks that have a part of it, in one message for
// all weights. Refers to communicators and to the weights' plan (nn/precision.h), which it tells
// what codes are worth. For the rank's own thread.
#pragma once
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/nn/precision.h"

namespace mtrain {

/// A weight, and what this rank makes of it: local elements from `begin` on, as many as `codes`
/// has. Undefined: nothing.
struct WeightShard {
  const Parameter* parameter;
  Communicator* holders;  // the ranks that make codes of its elements, all together
  int64_t begin = 0;
  Tensor master = {}, codes = {};  // flat, float and u8
};

class MT_API QuantizedWeights {
 public:
  /// `rounded`: the type that codes are made from, after rounding to it. All holders, and ranks
  /// that have other parts of the matrices, give the same weights in the same order, those of one
  /// set of holders together.
  QuantizedWeights(ExecutionContext& ctx, std::vector<WeightShard> weights, DType rounded);
  /// Codes of the masters as they are now, with scales as the recipe has them now. Collective over
  /// holders and parts.
  void make();

 private:
  struct Weight : WeightShard {
    int64_t first = 0, matrices = 1;  // its floats among those of all
  };
  /// Weights that follow each other, and ranks that have to agree on them.
  struct Sharers {
    int64_t begin, end;
    Communicator* ranks;
  };
  void agree_on(const Weight& weight, Communicator& ranks);
  void measure();
  void encode(const Weight& weight);
  template <class Visit>
  void each_matrix(const Weight& weight, Visit&& visit) const;

  ExecutionContext& ctx_;
  DType rounded_;
  std::vector<Weight> weights_;  // those that are shared alike next to each other
  std::vector<Sharers> sharers_;
  Tensor measured_, factors_;  // float, one for each matrix
};

}  // namespace mtrain
