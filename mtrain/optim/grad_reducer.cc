#include "mtrain/optim/grad_reducer.h"

#include "mtrain/optim/reduce_strategy.h"

namespace mtrain {

GradReducer::GradReducer(ParamBuckets& buckets, const ReduceOptions& options)
    : buckets_(buckets),
      strategy_(options.in_order ? reduce_in_order(buckets) : reduce_by_bucket(buckets, options)) {
  MT_CHECK(!options.in_order || options.wire == GradientWire::fp32,
           "gradients that are summed in order are sent in fp32");
  buckets_.set_gradient_watch(this);
}

GradReducer::~GradReducer() { buckets_.set_gradient_watch(nullptr); }

void GradReducer::begin_step(int64_t backwards) { strategy_->begin_step(backwards); }
void GradReducer::before_gradient(int64_t leaf) { strategy_->before_gradient(leaf); }
void GradReducer::gradient_complete(int64_t leaf) { strategy_->gradient_complete(leaf); }
void GradReducer::micro_batch_done() { strategy_->micro_batch_done(); }
void GradReducer::reduce_scatter() { strategy_->reduce_scatter(); }

void GradReducer::reduce() {
  strategy_->reduce();
  buckets_.release_values();
}

double GradReducer::sum(std::span<const double> of_micro_batches) {
  Communicator& ranks = *buckets_.options().dense.all;
  values_.resize(of_micro_batches.size() * static_cast<size_t>(ranks.size()));
  ranks.all_gather(of_micro_batches, std::span(values_));
  double total = 0;
  for (double value : values_) total += value;
  return total;
}

}  // namespace mtrain
