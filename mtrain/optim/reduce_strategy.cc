#include "mtrain/optim/reduce_strategy.h"

#include <map>
#include <utility>

namespace mtrain {
namespace {

void all_reduce_as_one(ExecutionContext& ctx, Communicator& ranks,
                       const std::vector<Tensor>& parts) {
  MemoryScope use(ctx.memory(), MemoryUse::backward);
  int64_t count = 0;
  for (const Tensor& part : parts) count += part.numel();
  Tensor message = ctx.empty({count}, DType::f32);
  auto each = [&](auto&& call) {
    int64_t at = 0;
    for (const Tensor& part : parts)
      call(part, message.slice(0, at, at + part.numel())), at += part.numel();
  };
  each([&](const Tensor& part, const Tensor& place) { ctx.copy(place, part); });
  ranks.all_reduce(message);
  each([&](const Tensor& part, const Tensor& place) { ctx.copy(part, place); });
}

}  // namespace

ReduceStrategy::~ReduceStrategy() = default;

std::string text(const ParamBucket& bucket) {
  const std::vector<BucketItem>& items = bucket.plan.items;
  return cat("the bucket of ", items.front().parameter->name,
             items.size() > 1 ? cat(" to ", items.back().parameter->name) : "");
}

void zero_unwritten(ExecutionContext& ctx, ParamBucket& bucket) {
  bucket.grads.restore_memory();
  for (BucketItem& item : bucket.plan.items)
    if (!std::exchange(item.parameter->leaf->has_grad, true))
      ctx.fill_zero(item.parameter->main_grad);
}

void reduce_partial_sums(ParamBuckets& buckets) {
  std::vector<const Axis*> axes;  // in the order of parameters, the same on all ranks
  std::map<const Axis*, std::vector<Tensor>> parts;
  for (ParamBucket& bucket : buckets.buckets()) {
    if (!bucket.plan.late) continue;
    zero_unwritten(buckets.context(), bucket);
    for (BucketItem& item : bucket.plan.items)
      for (const PartialSum& sum : item.parameter->partial) {
        if (!parts.contains(sum.axis)) axes.push_back(sum.axis);
        int64_t begin = item.begin + sum.begin;
        parts[sum.axis].push_back(bucket.grads.slice(0, begin, begin + sum.size));
      }
  }
  for (const Axis* axis : axes) all_reduce_as_one(buckets.context(), axis->comm(), parts[axis]);
}

}  // namespace mtrain
