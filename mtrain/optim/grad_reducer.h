// GradReducer: sums the gradients of a step over its micro-batches and over data-parallel ranks, by
// one of two strategies (reduce_strategy.h):
//   by bucket  each rank adds its micro-batches up in place; the ranks' sums are reduced bucket by
//              bucket after the last backward, or during it (`overlap`), with the same bits. From
//              ZeRO 2 on, each micro-batch is reduced and its full gradients are freed.
//   in order   each rank keeps the gradients of each micro-batch, and all are added in the order of
//              the global batch: the same bits for any number of ranks, for more memory and time.
// The inner steps of the program (mtrain/pipeline/stage_steps.h) say when the reduction of each
// bucket starts; the reducer refuses a step that leaves one out or starts it too early. Refers to
// the buckets, which outlive it; for the rank's own thread. All ranks of a group make the same
// calls.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "mtrain/nn/gradient_bucket.h"
#include "mtrain/optim/gradient_messages.h"
#include "mtrain/optim/param_buckets.h"

namespace mtrain {

class ReduceStrategy;

struct ReduceOptions {
  bool in_order = false, overlap = false;  // overlap has no effect with in_order
  GradientWire wire = GradientWire::fp32;  // in_order supports only fp32
};

class MT_API GradReducer final : public LeafWatch {
 public:
  GradReducer(ParamBuckets& buckets, const ReduceOptions& options);
  ~GradReducer() override;
  GradReducer(const GradReducer&) = delete;
  GradReducer& operator=(const GradReducer&) = delete;

  /// The buckets, for InnerStepRules::buckets. The order is the same on all ranks: those of the
  /// last parameters first, because backward completes them first, and those with partial sums
  /// (Parameter::partial) at the end.
  const std::vector<GradientBucket>& buckets() const { return described_; }
  /// Before a step, also after one that failed.
  void begin_step();
  /// An inner step Reduce: starts the reduction of a bucket, by its index in buckets().
  /// REQUIRES: backward has added to its gradients all that this reduction sums. Collective.
  void start(size_t bucket);
  /// After the backward of each micro-batch.
  void micro_batch_done();
  /// From ZeRO 2 on, the Scatter of a pipeline's program: once per micro-batch, after its
  /// backward. Waits until its gradients are added to the shards and their memory is freed.
  void reduce_scatter();
  /// After the last micro-batch and the last start(): waits until all reductions are complete. Then
  /// each rank holds the sum over all micro-batches of all ranks, at least of the elements that it
  /// updates. Collective.
  void finish_step();
  /// The sum of one value per micro-batch, in the order of the global batch: the same bits for any
  /// number of ranks. Collective.
  double sum(std::span<const double> of_micro_batches);

  void before_value(int64_t) override {}
  void before_gradient(int64_t leaf) override;

 private:
  ParamBuckets& buckets_;
  std::vector<size_t> order_;  // indices of the ParamBuckets
  std::vector<GradientBucket> described_;
  std::unique_ptr<ReduceStrategy> strategy_;
  std::vector<double> values_;
};

}  // namespace mtrain
