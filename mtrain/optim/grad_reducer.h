// GradReducer: one sum of the gradients of a step's micro-batches over data-parallel ranks. Each
// rank adds up its own micro-batches as backward goes and the ranks' sums are added bucket by
// bucket: at the end of the step, or with `overlap` as soon as the last backward has a bucket
// complete, which changes no bit. From zero 2 on a bucket is added up and gives its memory back
// once per micro-batch. Or — `in_order` — each micro-batch's gradients are kept apart and added one
// after the other as the global batch has them: the same bits for any number of ranks, at the price
// of memory and time. Refers to the buckets; for the rank's own thread.
#pragma once
#include <map>
#include <span>
#include <vector>

#include "mtrain/optim/param_buckets.h"

namespace mtrain {

struct ReduceOptions {
  bool in_order = false, overlap = false;
};

class MT_API GradReducer final : public LeafWatch {
 public:
  GradReducer(ParamBuckets& buckets, const ReduceOptions& options);
  ~GradReducer() override;
  GradReducer(const GradReducer&) = delete;
  GradReducer& operator=(const GradReducer&) = delete;

  /// Before a step: how often backward will end on this rank, that is, how many calls of
  /// micro_batch_done() follow. 0: not known; then nothing is added up before reduce().
  void begin_step(int64_t backwards);
  /// After the backward of each micro-batch.
  void micro_batch_done();
  /// After the last: every rank holds the sum over all micro-batches of all ranks, of what it
  /// updates at least.
  void reduce();
  /// Adds up one value of each micro-batch, in the order of the global batch: the same bits for any
  /// number of ranks.
  double sum(std::span<const double> of_micro_batches);

  void before_value(int64_t) override {}
  void before_gradient(int64_t leaf) override;
  void gradient_complete(int64_t leaf) override;

 private:
  /// Where a bucket is between two launches.
  struct Progress {
    std::vector<char> complete;  // by item
    size_t missing = 0;          // items that are not
    bool dirty = false;          // written since it was last launched
    bool launched = false;       // in this step, or this micro-batch from zero 2 on
    bool filled = false;         // zero 2: the shard holds gradients of this step
    Pending pending;
    bool under_way = false;
    std::vector<Tensor>
        kept;  // in order: of each micro-batch; the first rank's are added up at once
  };
  bool last_backward() const { return done_ + 1 == expected_; }
  bool early(const ParamBucket& bucket) const;
  void launch_complete();
  void launch(size_t bucket);
  void finish(size_t bucket);
  void finish_outer(ParamBucket& bucket);
  void keep_shard(ParamBucket& bucket, Progress& progress);
  void flush_shared();
  void settle(ParamBucket& bucket);
  void reset(size_t bucket);
  void add_partial_sums();
  void add_over(Communicator& ranks, const std::vector<Tensor>& parts);
  void keep_micro_batch();
  void reduce_in_order();

  ParamBuckets& buckets_;
  Run& run_;
  ReduceOptions options_;
  std::vector<Progress> progress_;
  std::vector<size_t>
      order_;  // in which buckets are launched, the same on all ranks: the last parameters first
  size_t next_ = 0;  // in order_
  int64_t expected_ = 0, done_ = 0;
  std::vector<double> values_;
};

}  // namespace mtrain
