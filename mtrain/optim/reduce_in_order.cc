// Adds the gradients of all micro-batches in the order of the global batch: rank 0's first, each
// rank's in the order in which it ran them.
#include <utility>

#include "mtrain/optim/reduce_strategy.h"

namespace mtrain {
namespace {

class InOrderReduction final : public ReduceStrategy {
 public:
  explicit InOrderReduction(ParamBuckets& buckets)
      : buckets_(buckets), ctx_(buckets.context()), kept_(buckets.buckets().size()) {
    MT_CHECK(buckets.options().zero_stage < 2,
             "ranks that keep the gradients of each micro-batch cannot shard them");
  }

  void begin_step() override {
    state_ = State::collecting;
    for (auto& kept : kept_) kept.clear();  // of a step that failed
    passed_.assign(kept_.size(), 0);
  }
  void before_gradient(int64_t) override {}
  void start(size_t b) override {
    MT_CHECK(state_ == State::collecting, "gradients are reduced outside of a step");
    ParamBucket& bucket = buckets_.buckets()[b];
    MT_CHECK(!std::exchange(passed_[b], 1), text(bucket), " is reduced twice in a step");
    pass_on(bucket, std::exchange(kept_[b], {}));
  }

  void micro_batch_done() override {
    MT_CHECK(state_ == State::collecting, "a micro-batch ended outside of a step");
    auto& all = buckets_.buckets();
    for (size_t b = 0; b < all.size(); ++b) keep(all[b], kept_[b]);
  }

  void reduce_scatter() override {
    MT_CHECK(false, "gradients of whole micro-batches are not scattered");
  }

  void reduce() override {
    MT_CHECK(state_ == State::collecting, "gradients are reduced outside of a step");
    auto& all = buckets_.buckets();
    for (size_t b = 0; b < all.size(); ++b)
      MT_CHECK(passed_[b], text(all[b]), " is not reduced in this step: its program has no Reduce");
    reduce_partial_sums(buckets_);
    state_ = State::idle;
  }

 private:
  /// idle → collecting (begin_step) → idle (reduce)
  enum class State : uint8_t {
    idle,       // the bucket holds the sums of the last step
    collecting  // the bucket holds one micro-batch's gradients, `kept_` those before it
  };

  /// Rank 0 needs one sum only: its micro-batches are the first of the global batch.
  void keep(ParamBucket& bucket, std::vector<Tensor>& kept) {
    zero_unwritten(ctx_, bucket);
    if (bucket.group.all->rank() == 0 && !kept.empty()) {
      ctx_.accumulate(kept[0], bucket.grads);
    } else {
      MemoryScope use(ctx_.memory(), MemoryUse::gradients);
      kept.push_back(ctx_.empty(bucket.grads.shape(), DType::f32));
      ctx_.copy(kept.back(), bucket.grads);
    }
    for (BucketItem& item : bucket.plan.items) item.parameter->leaf->has_grad = false;
  }

  /// The sum so far goes from rank to rank; the last rank broadcasts the result.
  void pass_on(ParamBucket& bucket, const std::vector<Tensor>& kept) {
    zero_unwritten(ctx_, bucket);
    Communicator& ranks = *bucket.group.all;
    int rank = ranks.rank(), last = ranks.size() - 1;
    if (rank > 0) ranks.recv(bucket.grads, rank - 1);
    for (const Tensor& micro_batch : kept) ctx_.accumulate(bucket.grads, micro_batch);
    if (rank < last) ranks.send(bucket.grads, rank + 1);
    if (last > 0) ranks.broadcast(bucket.grads, last);
  }

  ParamBuckets& buckets_;
  ExecutionContext& ctx_;
  State state_ = State::idle;
  std::vector<std::vector<Tensor>> kept_;  // by bucket: of each micro-batch; of rank 0 their sum
  std::vector<char> passed_;               // by bucket: it is reduced in this step
};

}  // namespace

std::unique_ptr<ReduceStrategy> reduce_in_order(ParamBuckets& buckets) {
  return std::make_unique<InOrderReduction>(buckets);
}

}  // namespace mtrain
