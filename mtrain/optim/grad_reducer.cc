#include "mtrain/optim/grad_reducer.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "mtrain/optim/reduce_strategy.h"

namespace mtrain {

namespace {

// Dense and expert buckets are in one order, the last parameters first: two groups of ranks that
// started them in different orders would wait for each other forever.
std::vector<size_t> reduction_order(ParamBuckets& buckets) {
  const std::vector<ParamBucket>& all = buckets.buckets();
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  auto place = [&](size_t b) {
    return std::tuple(!all[b].plan.late, all[b].plan.part,
                      all[b].plan.items.back().parameter->leaf->number);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return place(a) > place(b); });
  return order;
}

int64_t sent(const Communicator& ranks, CommKind kind, int64_t count, DType dtype) {
  if (ranks.size() == 1) return 0;
  return bytes_sent({.kind = kind, .dtype = dtype, .peer = ranks.size() - 1, .count = count},
                    ranks.rank(), ranks.size());
}

/// The collective, its group and its bytes. The sums of bf16 messages that ranks exchange send what
/// the collective itself would.
void describe_collective(const ParamBucket& b, const ReduceOptions& options, GradientBucket& out) {
  const ReplicaGroup& group = b.group;
  const Communicator& all = *group.all;
  const DType dtype = options.wire == GradientWire::fp32 ? DType::f32 : DType::bf16;
  const auto element = static_cast<int64_t>(size_of(dtype));
  out.ranks = all.size(), out.axis = all.name(), out.bytes = b.plan.size * element;
  if (options.in_order) {
    out.collective = "sum in the order of ranks";
    const bool last = all.rank() == all.size() - 1;
    out.sent = sent(all, last ? CommKind::broadcast : CommKind::send, b.plan.size, dtype);
  } else if (b.plan.zero_stage == 0) {
    out.collective = "all-reduce";
    const int64_t n = all.size(),
                  count = dtype == DType::f32 ? b.plan.size : (b.plan.size + n - 1) / n * n;
    out.sent = sent(all, CommKind::all_reduce, count, dtype);
  } else {
    out.collective = "reduce-scatter";
    const Communicator& shard_group = group.shard_group();
    const int64_t shard = b.shard_end - b.shard_begin, own = b.own_end - b.own_begin;
    out.sent = sent(shard_group, CommKind::reduce_scatter, shard, dtype);
    if (group.copies() == 1) return;
    out.axis = cat(shard_group.name(), " and ", group.outer->name());
    out.sent += b.update_sharded_over_copies()
                    ? sent(*group.outer, CommKind::reduce_scatter, own, dtype)
                    : sent(*group.outer, CommKind::all_reduce, shard, dtype);
  }
}

GradientBucket described(const ParamBucket& b, const ReduceOptions& options) {
  GradientBucket out{
      .parts = {}, .blocking = options.in_order || !options.overlap, .expert = b.plan.expert};
  for (const BucketItem& item : b.plan.items)
    if (out.parts.empty() || out.parts.back() != item.part) out.parts.push_back(item.part);
  if (b.gradients_sharded())
    out.when = ReduceWhen::every_backward;
  else if (options.overlap && !options.in_order && !b.plan.late)
    out.when = ReduceWhen::last_backward;
  describe_collective(b, options, out);
  return out;
}

}  // namespace

GradReducer::GradReducer(ParamBuckets& buckets, const ReduceOptions& options)
    : buckets_(buckets),
      order_(reduction_order(buckets)),
      strategy_(options.in_order ? reduce_in_order(buckets) : reduce_by_bucket(buckets, options)) {
  MT_CHECK(!options.in_order || options.wire == GradientWire::fp32,
           "gradients that are summed in order are sent in fp32");
  for (size_t b : order_) described_.push_back(described(buckets.buckets()[b], options));
  buckets_.set_gradient_watch(this);
}

GradReducer::~GradReducer() { buckets_.set_gradient_watch(nullptr); }

void GradReducer::begin_step() { strategy_->begin_step(); }
void GradReducer::start(size_t bucket) { strategy_->start(order_.at(bucket)); }
void GradReducer::before_gradient(int64_t leaf) { strategy_->before_gradient(leaf); }
void GradReducer::micro_batch_done() { strategy_->micro_batch_done(); }
void GradReducer::reduce_scatter() { strategy_->reduce_scatter(); }

void GradReducer::finish_step() {
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
