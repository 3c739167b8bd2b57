// Reduces gradients bucket by bucket. A bucket's reduction is one all-reduce (ZeRO 0) or one
// reduce-scatter, with hybrid sharding followed by the sum over the copies. When it starts:
//   ZeRO 0, 1  once per step: in reduce(); with `overlap` as soon as the last backward has written
//              the whole bucket
//   ZeRO 2, 3  once per micro-batch: as soon as backward has written the whole bucket, at the
//              latest in reduce_scatter(). It is then added to the rank's shard, and the bucket's
//              memory is freed. `overlap`: backward continues while one bucket is reduced.
#include <algorithm>
#include <utility>

#include "mtrain/optim/gradient_messages.h"
#include "mtrain/optim/reduce_strategy.h"

namespace mtrain {
namespace {

enum class GradState : uint8_t {
  empty,     // backward has written nothing
  written,   // backward has written something, perhaps not all
  reducing,  // a collective reads and writes the gradients
  reduced    // they are the sum over ranks; from ZeRO 2 on it is in the shard
};

/// The state of one bucket's gradients, and what of them is complete.
class BucketGradients {
 public:
  explicit BucketGradients(size_t items) : complete_(items), missing_(items) {}

  GradState state() const { return state_; }
  bool started() const { return state_ >= GradState::reducing; }
  bool complete() const { return missing_ == 0; }

  void write(size_t item) {
    move_to(GradState::written);
    if (std::exchange(complete_[item], 0)) ++missing_;
  }
  /// Returns whether that was the last item.
  bool set_complete(size_t item) {
    if (std::exchange(complete_[item], 1)) return false;
    return --missing_ == 0;
  }
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
  void clear() {
    move_to(GradState::empty);
    *this = BucketGradients(complete_.size());
  }
  /// For a new step, from any state: the step before may have failed.
  void restart() {
    pending_.abandon();
    *this = BucketGradients(complete_.size());
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
  std::vector<char> complete_;  // by item
  size_t missing_;              // items that are not complete
  GradientSum pending_;         // of `reducing`
};

class BucketReduction final : public ReduceStrategy {
 public:
  BucketReduction(ParamBuckets& buckets, const ReduceOptions& options);

  void begin_step(int64_t backwards) override;
  void before_gradient(int64_t leaf) override;
  void gradient_complete(int64_t leaf) override;
  void micro_batch_done() override { ++done_; }
  void reduce_scatter() override;
  void reduce() override;

 private:
  ParamBucket& bucket(size_t b) { return buckets_.buckets()[b]; }
  bool starts_in_backward(size_t b);
  void start_complete();
  void start(size_t b);
  void finish(size_t b);
  void finish_outer(ParamBucket& bucket);
  void add_to_shard(size_t b);
  void reduce_micro_batch();

  ParamBuckets& buckets_;
  ExecutionContext& ctx_;
  const GradientMessages messages_;
  const bool overlap_;
  const bool sharded_;                  // ZeRO 2 and 3, of all buckets in `order_`
  std::vector<BucketGradients> grads_;  // by bucket
  std::vector<char> shard_filled_;      // by bucket: the shard holds gradients of this step
  std::vector<size_t> order_;           // in which reductions start, the same on all ranks
  std::vector<size_t> late_;            // buckets with partial sums, reduced in reduce() only
  size_t next_ = 0;                     // in order_
  int64_t expected_ = 0, done_ = 0;     // micro-batches of the step
  int64_t scattered_ = 0;               // of `done_`, with ZeRO 2 and 3
};

// Dense and expert buckets are in one order, the last parameters first: two groups of ranks that
// started them in different orders would wait for each other forever.
BucketReduction::BucketReduction(ParamBuckets& buckets, const ReduceOptions& options)
    : buckets_(buckets),
      ctx_(buckets.context()),
      messages_(ctx_, options.wire),
      overlap_(options.overlap),
      sharded_(buckets.options().zero_stage >= 2),
      shard_filled_(buckets.buckets().size()) {
  auto& all = buckets.buckets();
  for (size_t b = 0; b < all.size(); ++b) {
    grads_.emplace_back(all[b].plan.items.size());
    (all[b].plan.late ? late_ : order_).push_back(b);
  }
  auto place = [&](size_t b) {
    return std::pair(all[b].plan.part, all[b].plan.items.back().parameter->leaf->number);
  };
  std::stable_sort(order_.begin(), order_.end(),
                   [&](size_t a, size_t b) { return place(a) > place(b); });
}

void BucketReduction::begin_step(int64_t backwards) {
  expected_ = backwards, done_ = scattered_ = 0, next_ = 0;
  for (BucketGradients& grads : grads_) grads.restart();
  shard_filled_.assign(shard_filled_.size(), 0);
}

bool BucketReduction::starts_in_backward(size_t b) {
  if (bucket(b).plan.late) return false;
  bool last_backward = done_ + 1 == expected_;
  return sharded_ || (overlap_ && last_backward);
}

void BucketReduction::before_gradient(int64_t leaf) {
  auto [b, item] = buckets_.place_of(leaf);
  if (grads_[b].started()) {
    MT_CHECK(bucket(b).shares_gradients(), "a gradient of ",
             bucket(b).plan.items[item].parameter->name, " came after its reduction had started");
    finish(b);
  }
  grads_[b].write(item);
}

void BucketReduction::gradient_complete(int64_t leaf) {
  auto [b, item] = buckets_.place_of(leaf);
  if (starts_in_backward(b) && grads_[b].set_complete(item)) start_complete();
}

// In the fixed order only: ranks can have different gradients (experts without tokens).
void BucketReduction::start_complete() {
  for (; next_ < order_.size(); ++next_) {
    size_t b = order_[next_];
    if (!grads_[b].complete() || !starts_in_backward(b)) break;
    start(b);
    if (!overlap_)
      finish(b);
    else if (sharded_ && next_ > 0)
      finish(order_[next_ - 1]);  // at most two buckets have memory for full gradients
  }
  for (size_t i = 0; i < next_; ++i) grads_[order_[i]].progress();
}

void BucketReduction::start(size_t b) {
  ParamBucket& of = bucket(b);
  zero_unwritten(ctx_, of);
  grads_[b].start(of.plan.zero_stage == 0 ? messages_.start_all_reduce(*of.group.all, of.grads)
                                          : messages_.start_reduce_scatter(
                                                of.group.sharers(), of.grads, of.shard_of_grads()));
}

void BucketReduction::finish(size_t b) {
  if (grads_[b].state() != GradState::reducing) return;
  grads_[b].wait();
  if (bucket(b).plan.zero_stage > 0) finish_outer(bucket(b));
  if (bucket(b).shares_gradients()) add_to_shard(b);
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

// All buckets, written or not: ranks must agree on what they reduce.
void BucketReduction::reduce_micro_batch() {
  for (size_t b : order_) {
    if (!grads_[b].started()) start(b);
    finish(b);
    grads_[b].clear();
  }
  next_ = 0;
}

void BucketReduction::reduce_scatter() {
  MT_CHECK(sharded_, "only ZeRO 2 and 3 scatter gradients");
  reduce_micro_batch();
  ++scattered_;
}

void BucketReduction::reduce() {
  MT_CHECK(!sharded_ || scattered_ == done_, "the gradients of ", done_,
           " micro-batches were scattered ", scattered_,
           " times: the program needs one Scatter for each (with_sharding_actions)");
  bool written_since = sharded_ && std::any_of(order_.begin(), order_.end(), [&](size_t b) {
                         return grads_[b].state() != GradState::empty;
                       });
  if (written_since) reduce_micro_batch();
  reduce_partial_sums(buckets_);
  std::vector<size_t> whole = sharded_ ? std::vector<size_t>() : order_;
  whole.insert(whole.end(), late_.begin(), late_.end());
  for (size_t b : whole) {
    if (!grads_[b].started()) start(b);
    if (!overlap_) finish(b);
  }
  for (size_t b : whole) finish(b);
  for (BucketGradients& grads : grads_) grads.clear();
  expected_ = 0;
}

}  // namespace

std::unique_ptr<ReduceStrategy> reduce_by_bucket(ParamBuckets& buckets,
                                                 const ReduceOptions& options) {
  return std::make_unique<BucketReduction>(buckets, options);
}

}  // namespace mtrain
