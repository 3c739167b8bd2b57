#include "mtrain/optim/grad_reducer.h"

#include <algorithm>

namespace mtrain {
GradReducer::GradReducer(ParamBuckets& buckets, const ReduceOptions& options)
    : buckets_(buckets),
      run_(buckets.run()),
      options_(options),
      progress_(buckets.buckets().size()) {
  MT_CHECK(!options.in_order || buckets.options().zero_stage < 2,
           "gradients that are kept apart cannot be shared out");
  for (size_t b = 0; b < progress_.size(); ++b) {
    reset(b);
    if (!buckets.buckets()[b].plan.late) order_.push_back(b);
  }
  // Dense and experts' buckets in one order: ranks that wait for each other in two groups must not
  // do it crosswise.
  auto last = [&](size_t b) {
    return buckets_.buckets()[b].plan.items.back().parameter->leaf->number;
  };
  auto& all = buckets_.buckets();
  std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    return std::pair(all[a].plan.unit, last(a)) > std::pair(all[b].plan.unit, last(b));
  });
  buckets_.set_gradient_watch(this);
}

GradReducer::~GradReducer() { buckets_.set_gradient_watch(nullptr); }

void GradReducer::reset(size_t b) {
  Progress& progress = progress_[b];
  progress.missing = buckets_.buckets()[b].plan.items.size();
  progress.complete.assign(progress.missing, 0);
  progress.dirty = progress.launched = false;
}

void GradReducer::begin_step(int64_t backwards) {
  expected_ = backwards, done_ = 0, next_ = 0;
  for (size_t b = 0; b < progress_.size(); ++b) reset(b);
}

bool GradReducer::early(const ParamBucket& b) const {
  if (b.plan.late || options_.in_order) return false;
  return b.shares_gradients() || (options_.overlap && last_backward());
}

void GradReducer::before_gradient(int64_t leaf) {
  auto [b, item] = buckets_.place_of(leaf);
  Progress& progress = progress_[b];
  ParamBucket& bucket = buckets_.buckets()[b];
  progress.dirty = true;
  if (progress.complete[item]) progress.complete[item] = 0, ++progress.missing;
  if (!progress.launched) return;
  MT_CHECK(bucket.shares_gradients(), "a gradient of ", bucket.plan.items[item].parameter->name,
           " came after the ranks began to add it up");
  finish(b);
}

void GradReducer::gradient_complete(int64_t leaf) {
  auto [b, item] = buckets_.place_of(leaf);
  Progress& progress = progress_[b];
  if (progress.complete[item] || !early(buckets_.buckets()[b])) return;
  progress.complete[item] = 1;
  if (--progress.missing == 0) launch_complete();
}

// Never out of turn: which gradients are there can differ between ranks (experts without tokens).
void GradReducer::launch_complete() {
  for (; next_ < order_.size(); ++next_) {
    size_t b = order_[next_];
    if (progress_[b].missing > 0 || !early(buckets_.buckets()[b])) break;
    launch(b);
    bool shared = buckets_.buckets()[b].shares_gradients();
    if (!options_.overlap)
      finish(b);
    else if (shared && next_ > 0)
      finish(order_[next_ - 1]);  // two full buckets at most
  }
  for (size_t i = 0; i < next_; ++i)
    if (Progress& p = progress_[order_[i]]; p.under_way) p.pending.done();  // lets it go on
}

// Gradients that no backward has written are zero.
void GradReducer::settle(ParamBucket& b) {
  b.grads.restore_memory();
  for (BucketItem& item : b.plan.items)
    if (!item.parameter->leaf->has_grad) run_.fill_zero(item.parameter->main_grad);
}

void GradReducer::launch(size_t b) {
  ParamBucket& bucket = buckets_.buckets()[b];
  Progress& progress = progress_[b];
  finish(b);
  settle(bucket);
  progress.launched = progress.under_way = true;
  progress.dirty = false;
  if (bucket.plan.zero_stage == 0) {
    progress.pending = bucket.group.all->start_all_reduce(bucket.grads);
  } else {
    progress.pending =
        bucket.group.sharers().start_reduce_scatter(bucket.grads, bucket.shard_of_grads());
  }
}

void GradReducer::finish(size_t b) {
  Progress& progress = progress_[b];
  if (!progress.under_way) return;
  ParamBucket& bucket = buckets_.buckets()[b];
  progress.pending.wait();
  progress.pending = {};
  progress.under_way = false;
  if (bucket.plan.zero_stage > 0) finish_outer(bucket);
  if (bucket.shares_gradients()) keep_shard(bucket, progress);
}

// The same shard of other copies.
void GradReducer::finish_outer(ParamBucket& b) {
  if (b.group.copies() == 1) return;
  Tensor shard = b.shard_of_grads();
  if (b.own_end - b.own_begin == shard.numel())
    b.group.outer->all_reduce(shard);
  else
    b.group.outer->reduce_scatter(shard, b.grads.slice(0, b.own_begin, b.own_end));
}

void GradReducer::keep_shard(ParamBucket& b, Progress& progress) {
  if (std::exchange(progress.filled, true))
    run_.accumulate(b.shard_grads, b.shard_of_grads());
  else
    run_.copy(b.shard_grads, b.shard_of_grads());
  b.grads.release_memory();
  for (BucketItem& item : b.plan.items) item.parameter->leaf->has_grad = false;
}

// All of them, touched or not: ranks must agree on what they add up.
void GradReducer::flush_shared() {
  for (size_t b : order_) {
    if (!buckets_.buckets()[b].shares_gradients()) continue;
    if (!progress_[b].launched || progress_[b].dirty) launch(b);
    finish(b);
    reset(b);
  }
  next_ = 0;
}

void GradReducer::micro_batch_done() {
  if (options_.in_order)
    keep_micro_batch();
  else if (buckets_.options().zero_stage >= 2)
    flush_shared();
  ++done_;
}

void GradReducer::reduce() {
  if (options_.in_order) {
    reduce_in_order();
    buckets_.release_values();
    return;
  }
  auto& all = buckets_.buckets();
  bool late_writes = std::any_of(order_.begin(), order_.end(), [&](size_t b) {
    return all[b].shares_gradients() && progress_[b].dirty;
  });
  if (late_writes) flush_shared();
  add_partial_sums();
  std::vector<size_t> whole;
  for (size_t b : order_)
    if (!all[b].shares_gradients()) whole.push_back(b);
  for (size_t b = 0; b < all.size(); ++b)
    if (all[b].plan.late) whole.push_back(b);
  for (size_t b : whole) {
    if (!progress_[b].launched) launch(b);
    if (!options_.overlap) finish(b);
  }
  for (size_t b : whole) finish(b);
  for (size_t b = 0; b < all.size(); ++b) {
    reset(b);
    progress_[b].filled = false;
  }
  expected_ = 0;
  buckets_.release_values();
}

void GradReducer::add_partial_sums() {
  std::vector<const Axis*> axes;
  std::map<const Axis*, std::vector<Tensor>> parts;
  for (ParamBucket& bucket : buckets_.buckets()) {
    if (!bucket.plan.late) continue;
    settle(bucket);
    for (BucketItem& item : bucket.plan.items)
      for (const PartialSum& sum : item.parameter->partial) {
        if (!parts.contains(sum.axis)) axes.push_back(sum.axis);
        parts[sum.axis].push_back(
            bucket.grads.slice(0, item.begin + sum.begin, item.begin + sum.begin + sum.size));
      }
  }
  for (const Axis* axis : axes) add_over(axis->comm(), parts[axis]);
}

// In one message.
void GradReducer::add_over(Communicator& ranks, const std::vector<Tensor>& parts) {
  MemoryScope use(run_.memory(), MemoryUse::backward);
  int64_t count = 0;
  for (const Tensor& part : parts) count += part.numel();
  Tensor message = run_.empty({count}, DType::f32);
  auto each = [&](auto&& call) {
    int64_t at = 0;
    for (const Tensor& part : parts)
      call(part, message.slice(0, at, at + part.numel())), at += part.numel();
  };
  each([&](const Tensor& part, const Tensor& place) { run_.copy(place, part); });
  ranks.all_reduce(message);
  each([&](const Tensor& part, const Tensor& place) { run_.copy(part, place); });
}

void GradReducer::keep_micro_batch() {
  auto& all = buckets_.buckets();
  for (size_t b = 0; b < all.size(); ++b) {
    std::vector<Tensor>& kept = progress_[b].kept;
    settle(all[b]);
    if (all[b].group.all->rank() == 0 && !kept.empty()) {
      run_.accumulate(kept[0], all[b].grads);
    } else {
      MemoryScope use(run_.memory(), MemoryUse::gradients);
      kept.push_back(run_.empty(all[b].grads.shape(), DType::f32));
      run_.copy(kept.back(), all[b].grads);
    }
    for (BucketItem& item : all[b].plan.items) item.parameter->leaf->has_grad = false;
  }
}

// The sum so far goes from rank to rank; the last one has it whole.
void GradReducer::reduce_in_order() {
  auto& all = buckets_.buckets();
  for (size_t b = 0; b < all.size(); ++b) {
    settle(all[b]);
    Communicator& ranks = *all[b].group.all;
    int rank = ranks.rank(), last = ranks.size() - 1;
    if (rank > 0) ranks.recv(all[b].grads, rank - 1);
    for (const Tensor& micro_batch : std::exchange(progress_[b].kept, {}))
      run_.accumulate(all[b].grads, micro_batch);
    if (rank < last) ranks.send(all[b].grads, rank + 1);
    if (last > 0) ranks.broadcast(all[b].grads, last);
    reset(b);
  }
  add_partial_sums();
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
