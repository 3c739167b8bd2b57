// Reduces gradients bucket by bucket, where the program's steps say so. A bucket's reduction is one
// all-reduce (ZeRO 0) or one reduce-scatter, with hybrid sharding followed by the sum over the
// copies:
//   ZeRO 0, 1  once per step
//   ZeRO 2, 3  once per micro-batch; then it is added to the rank's shard, and the bucket's memory
//              is freed
// With `overlap`, the rank computes while a bucket is reduced.
#include <utility>

#include "mtrain/optim/gradient_messages.h"
#include "mtrain/optim/reduce_strategy.h"

namespace mtrain {
namespace {

enum class GradState : uint8_t {
  empty,     // backward has written nothing
  written,   // backward has written something
  reducing,  // a collective reads and writes the gradients
  reduced    // they are the sum over ranks; from ZeRO 2 on it is in the shard
};

/// The state of one bucket's gradients.
class BucketGradients {
 public:
  GradState state() const { return state_; }
  bool started() const { return state_ >= GradState::reducing; }

  void write() { move_to(GradState::written); }
  void start(GradientSum reduction) {
    move_to(GradState::reducing);
    pending_ = std::move(reduction);
  }
  /// Lets a reduction continue that needs this thread.
  void progress() {
    if (state_ == GradState::reducing) pending_.progress();
  }
  void wait() {
    pending_.wait();
    pending_ = {};
    move_to(GradState::reduced);
  }
  void clear() { move_to(GradState::empty); }
  /// For a new step, from any state: the step before may have failed.
  void restart() {
    pending_.abandon();
    *this = BucketGradients();
  }

 private:
  void move_to(GradState next) {
    constexpr bool kLegal[4][4] = {
        // to empty, written, reducing, reduced
        {true, true, true, false},    // from empty; to reducing: all zeros
        {false, true, true, false},   // from written
        {false, false, false, true},  // from reducing
        {true, true, false, false}};  // from reduced; to written: another backward, from ZeRO 2 on
    MT_CHECK(kLegal[static_cast<size_t>(state_)][static_cast<size_t>(next)],
             "gradients of a bucket in state ", static_cast<int>(state_), " cannot go to ",
             static_cast<int>(next));
    state_ = next;
  }

  GradState state_ = GradState::empty;
  GradientSum pending_;  // of `reducing`
};

class BucketReduction final : public ReduceStrategy {
 public:
  BucketReduction(ParamBuckets& buckets, const ReduceOptions& options)
      : buckets_(buckets),
        ctx_(buckets.context()),
        messages_(ctx_, options.wire),
        overlap_(options.overlap),
        grads_(buckets.buckets().size()),
        shard_filled_(buckets.buckets().size()) {}

  void begin_step() override;
  void start(size_t b) override;
  void before_gradient(int64_t leaf) override;
  void micro_batch_done() override { ++done_; }
  void reduce_scatter() override;
  void reduce() override;

 private:
  ParamBucket& bucket(size_t b) { return buckets_.buckets()[b]; }
  bool sharded() const { return buckets_.options().zero_stage >= 2; }
  void finish(size_t b);
  void finish_all();
  void finish_outer(ParamBucket& bucket);
  void add_to_shard(size_t b);

  ParamBuckets& buckets_;
  ExecutionContext& ctx_;
  const GradientMessages messages_;
  const bool overlap_;
  std::vector<BucketGradients> grads_;  // by bucket
  std::vector<char> shard_filled_;      // by bucket: the shard holds gradients of this step
  std::vector<size_t> running_;         // started and not finished, in the order of their start
  bool partial_sums_done_ = false;
  int64_t done_ = 0, scattered_ = 0;  // micro-batches of the step; of them, with ZeRO 2 and 3
};

void BucketReduction::begin_step() {
  done_ = scattered_ = 0, partial_sums_done_ = false;
  running_.clear();
  for (BucketGradients& grads : grads_) grads.restart();
  shard_filled_.assign(shard_filled_.size(), 0);
}

void BucketReduction::before_gradient(int64_t leaf) {
  auto [b, item] = buckets_.place_of(leaf);
  if (grads_[b].started()) {
    MT_CHECK(bucket(b).gradients_sharded(), "a gradient of ",
             bucket(b).plan.items[item].parameter->name, " came after the reduction of ",
             text(bucket(b)), " had started");
    finish(b);
  }
  grads_[b].write();
}

// Also of gradients that no backward has written: ranks must agree on what they reduce.
void BucketReduction::start(size_t b) {
  ParamBucket& of = bucket(b);
  if (grads_[b].started()) {
    MT_CHECK(of.gradients_sharded(), text(of), " is reduced twice in a step");
    finish(b);
    grads_[b].clear();
  }
  if (of.plan.late && !std::exchange(partial_sums_done_, true)) reduce_partial_sums(buckets_);
  zero_unwritten(ctx_, of);
  grads_[b].start(
      of.plan.zero_stage == 0
          ? messages_.start_all_reduce(*of.group.all, of.grads)
          : messages_.start_reduce_scatter(of.group.shard_group(), of.grads, of.shard_of_grads()));
  running_.push_back(b);
  // With ZeRO 2 and 3, at most two buckets have memory for full gradients: this one, and the next
  // one that backward writes.
  const size_t most = !overlap_ ? 0 : of.gradients_sharded() ? 1 : running_.size();
  while (running_.size() > most) finish(running_.front());
  for (size_t started : running_) grads_[started].progress();
}

void BucketReduction::finish(size_t b) {
  if (grads_[b].state() != GradState::reducing) return;
  std::erase(running_, b);
  grads_[b].wait();
  if (bucket(b).plan.zero_stage > 0) finish_outer(bucket(b));
  if (bucket(b).gradients_sharded()) add_to_shard(b);
}

void BucketReduction::finish_all() {
  while (!running_.empty()) finish(running_.front());
}

/// Sums the shard over the copies of hybrid sharding.
void BucketReduction::finish_outer(ParamBucket& of) {
  if (of.group.copies() == 1) return;
  Tensor shard = of.shard_of_grads();
  if (of.own_end - of.own_begin == shard.numel())
    messages_.start_all_reduce(*of.group.outer, shard).wait();
  else
    messages_
        .start_reduce_scatter(*of.group.outer, shard, of.grads.slice(0, of.own_begin, of.own_end))
        .wait();
}

void BucketReduction::add_to_shard(size_t b) {
  ParamBucket& of = bucket(b);
  if (std::exchange(shard_filled_[b], 1))
    ctx_.accumulate(of.shard_grads, of.shard_of_grads());
  else
    ctx_.copy(of.shard_grads, of.shard_of_grads());
  of.grads.release_memory();
  for (BucketItem& item : of.plan.items) item.parameter->leaf->has_grad = false;
}

void BucketReduction::reduce_scatter() {
  MT_CHECK(sharded(), "only ZeRO 2 and 3 scatter gradients");
  finish_all();
  for (size_t b = 0; b < grads_.size(); ++b)
    if (bucket(b).gradients_sharded() && grads_[b].state() == GradState::reduced) grads_[b].clear();
  ++scattered_;
}

void BucketReduction::reduce() {
  MT_CHECK(!sharded() || scattered_ == done_, "the gradients of ", done_,
           " micro-batches were scattered ", scattered_,
           " times: the program needs one Scatter for each (with_sharding_actions)");
  finish_all();
  for (size_t b = 0; b < grads_.size(); ++b) {
    const bool shares = bucket(b).gradients_sharded();
    MT_CHECK(shares ? shard_filled_[b] : grads_[b].started(), text(bucket(b)),
             " is not reduced in this step: its program has no Reduce of it");
    MT_CHECK(grads_[b].state() != GradState::written, "gradients in ", text(bucket(b)),
             " came after its last reduction in this step");
    grads_[b].clear();
  }
}

}  // namespace

std::unique_ptr<ReduceStrategy> reduce_by_bucket(ParamBuckets& buckets,
                                                 const ReduceOptions& options) {
  return std::make_unique<BucketReduction>(buckets, options);
}

}  // namespace mtrain
