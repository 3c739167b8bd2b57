#include "mtrain/optim/bucket_plan.h"

#include <algorithm>
#include <numeric>

namespace mtrain {
namespace {

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Places parameters one after the other.
void place_items(BucketPlan& bucket, int shards, bool pad) {
  int64_t at = 0;
  for (BucketItem& item : bucket.items) {
    item.begin = at;
    at = round_up(item.end(), kBucketAlignment);
  }
  const int64_t shares = shards * kBucketAlignment;
  bucket.size = round_up(std::max<int64_t>(at, 1), pad ? std::lcm(shares, kBucketPadding) : shares);
}

}  // namespace

int64_t default_bucket_size(int ranks) {
  constexpr int64_t kLeast = 40'000'000, kPerRank = 1'000'000;
  return std::max(kLeast, kPerRank * ranks);
}

namespace {

/// The properties that all parameters of a bucket share.
struct Kind {
  bool expert, late, quantized;
  bool of(const Parameter& p) const {
    return p.expert == expert && !p.partial.empty() == late &&
           (p.quantized != nullptr) == quantized;
  }
};

/// The parameters with their parts, in the order of the parts.
using InOrder = std::vector<std::pair<PartId, Parameter*>>;

void plan_kind(const InOrder& parameters, const Kind& kind, const BucketRules& rules,
               std::vector<BucketPlan>& buckets) {
  int shards = kind.expert ? rules.expert_shards : rules.dense_shards;
  int zero_stage = kind.late ? std::min(rules.zero_stage, 1) : rules.zero_stage;
  int64_t most = rules.bucket_size > 0 ? rules.bucket_size : default_bucket_size(shards),
          filled = 0;
  bool open = false;
  size_t first = buckets.size();
  for (const auto& [part, p] : parameters) {
    if (!p->trained || !kind.of(*p)) continue;
    bool fits = open && filled < most && (zero_stage < 2 || buckets.back().part == part);
    if (!fits) {
      buckets.push_back({.expert = kind.expert,
                         .late = kind.late,
                         .quantized = kind.quantized,
                         .zero_stage = zero_stage,
                         .part = part,
                         .size = 0,
                         .items = {}});
      open = true, filled = 0;
    }
    buckets.back().items.push_back({p, 0, part});
    filled += p->numel();
  }
  for (size_t b = first; b < buckets.size(); ++b) place_items(buckets[b], shards, rules.pad);
}

}  // namespace

std::vector<BucketPlan> plan_buckets(std::deque<Parameter>& parameters, const BucketRules& rules) {
  std::vector<BucketPlan> buckets;
  InOrder in_order;
  for (PartId part : parts_of(parameters))
    in_order.emplace_back(part, &parameters[in_order.size()]);
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (bool expert : {false, true})
    for (bool late : {false, true})
      for (bool small : {false, true}) plan_kind(in_order, {expert, late, small}, rules, buckets);
  return buckets;
}

}  // namespace mtrain
