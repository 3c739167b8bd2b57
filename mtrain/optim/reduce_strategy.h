// ReduceStrategy: how GradReducer sums gradients; its functions are those of GradReducer. What both
// strategies share is below. Refers to the buckets; for the rank's own thread.
#pragma once
#include <memory>

#include "mtrain/optim/grad_reducer.h"

namespace mtrain {

class ReduceStrategy {
 public:
  virtual ~ReduceStrategy();
  virtual void begin_step() = 0;
  /// Starts the reduction of a bucket, given its index in ParamBuckets::buckets().
  virtual void start(size_t bucket) = 0;
  /// Backward is about to write the gradient of a leaf.
  virtual void before_gradient(int64_t leaf) = 0;
  virtual void micro_batch_done() = 0;
  virtual void reduce_scatter() = 0;
  virtual void reduce() = 0;
};

/// Bucket by bucket. With `overlap`, a reduction continues while the rank computes.
std::unique_ptr<ReduceStrategy> reduce_by_bucket(ParamBuckets& buckets,
                                                 const ReduceOptions& options);
/// Micro-batch by micro-batch, in the order of the global batch. REQUIRES: ZeRO 0 or 1.
std::unique_ptr<ReduceStrategy> reduce_in_order(ParamBuckets& buckets);

/// "the bucket of layers.0.norm.weight to layers.3.mlp.down", for errors.
std::string text(const ParamBucket& bucket);
/// Gives the bucket's gradients memory and writes zeros where no backward has written.
void zero_unwritten(ExecutionContext& ctx, ParamBucket& bucket);
/// Sums the gradients that are partial sums on the ranks of other axes (Parameter::partial), in one
/// all-reduce per axis. Collective over these axes.
void reduce_partial_sums(ParamBuckets& buckets);

}  // namespace mtrain
