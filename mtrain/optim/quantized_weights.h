// QuantizedWeights: quantizes weights to FP8 codes on the ranks that update them, before the
// all-gather. The codes are bit-identical to those that each rank would make from gathered bf16
// values. To this end, the amax of each matrix is reduced over all ranks that have a part of it, in
// one message for all weights. Refers to communicators and to the weights' precision plan
// (nn/precision.h), in which it stores the scales. For the rank's own thread.
#pragma once
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/nn/precision.h"

namespace mtrain {

/// A weight and the part that this rank quantizes: codes.numel() local elements from `begin` on;
/// none if `codes` is undefined.
struct WeightShard {
  const Parameter* parameter;
  Communicator* holders;  // the ranks that together quantize its elements
  int64_t begin = 0;
  Tensor master = {}, codes = {};  // flat, float and u8
};

class MT_API QuantizedWeights {
 public:
  /// `rounded`: master weights are rounded to this type before quantization. All holders, and all
  /// ranks with other parts of the matrices, pass the same weights in the same order, with the
  /// weights of one group of holders next to each other.
  QuantizedWeights(ExecutionContext& ctx, std::vector<WeightShard> weights, DType rounded);
  /// Quantizes the current master weights with the current scales. Collective over holders and over
  /// ranks with other parts.
  void make();

 private:
  struct Weight : WeightShard {
    int64_t first = 0, matrices = 1;  // its range in measured_ and factors_
  };
  /// A range of weights, and the ranks over which their amax is reduced.
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
  std::vector<Weight> weights_;  // weights with the same ranks are adjacent
  std::vector<Sharers> sharers_;
  Tensor measured_, factors_;  // float, one for each matrix
};

}  // namespace mtrain
