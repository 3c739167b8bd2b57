// GradReducer: one sum of the gradients of a step's micro-batches over data-parallel ranks. Either each rank adds up its own
// micro-batches as backward goes and the ranks' sums are added once, or — `in_order` — each micro-batch's gradients are kept
// apart and added one after the other as the global batch has them: the same bits for any number of ranks, at the price of
// memory and time. Refers to the communicator, the run and the parameters; for the rank's own thread.
#pragma once
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/nn/parameter.h"

namespace mtrain {

class MT_API GradReducer {
 public:
  GradReducer(Communicator& ranks, Run& run, ParamList& parameters, bool in_order)
      : ranks_(ranks), run_(run), parameters_(parameters), in_order_(in_order) {}

  /// After the backward of each micro-batch.
  void micro_batch_done();
  /// After the last: every rank's gradient buffer holds the sum over all micro-batches of all ranks.
  void reduce();
  /// Adds up one value of each micro-batch, in the order of the global batch: the same bits for any number of ranks.
  double sum(std::span<const double> of_micro_batches);

 private:
  void add(const Tensor& to, const Tensor& from);
  void reduce_in_order();
  /// What ranks of other axes have summands of (Parameter::partial).
  void add_partial_sums();

  Communicator& ranks_;
  Run& run_;
  ParamList& parameters_;
  bool in_order_;
  std::vector<Tensor> kept_;  // in order: of each micro-batch; the first rank's are added up at once
  std::vector<double> values_;
};

}  // namespace mtrain
