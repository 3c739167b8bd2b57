#include "mtrain/optim/bucket_plan.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace mtrain {
namespace {

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Places parameters one after the other.
void pack(BucketPlan& bucket, int shards, bool pad) {
  int64_t at = 0;
  for (BucketItem& item : bucket.items) {
    item.begin = at;
    at = round_up(item.end(), kBucketAlignment);
  }
  const int64_t shares = shards * kBucketAlignment;
  bucket.size = round_up(std::max<int64_t>(at, 1), pad ? std::lcm(shares, kBucketPadding) : shares);
}

int number_units(std::deque<Parameter>& parameters, std::vector<int>& unit_of) {
  int units = 0;
  int64_t stage = 0;
  std::string_view block;
  for (const Parameter& p : parameters) {
    std::string_view own = block_of(p.name);
    if (units == 0 || own != block || p.stage != stage) ++units, block = own, stage = p.stage;
    unit_of.push_back(units - 1);
  }
  return units;
}

}  // namespace

int64_t default_bucket_size(int ranks) {
  constexpr int64_t kLeast = 40'000'000, kPerRank = 1'000'000;
  return std::max(kLeast, kPerRank * ranks);
}

std::string_view block_of(std::string_view parameter) {
  for (size_t begin = 0; begin < parameter.size();) {
    size_t end = std::min(parameter.find('.', begin), parameter.size());
    std::string_view part = parameter.substr(begin, end - begin);
    bool number = !part.empty() && std::all_of(part.begin(), part.end(),
                                               [](unsigned char c) { return std::isdigit(c); });
    if (number) return parameter.substr(0, end);
    begin = end + 1;
  }
  return {};
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

void plan_kind(std::deque<Parameter>& parameters, const std::vector<int>& unit_of, const Kind& kind,
               const BucketRules& rules, std::vector<BucketPlan>& buckets) {
  int shards = kind.expert ? rules.expert_shards : rules.dense_shards;
  int zero_stage = kind.late ? std::min(rules.zero_stage, 1) : rules.zero_stage;
  int64_t most = rules.bucket_size > 0 ? rules.bucket_size : default_bucket_size(shards),
          filled = 0;
  bool open = false;
  size_t first = buckets.size(), index = 0;
  for (Parameter& p : parameters) {
    int unit = unit_of[index++];
    if (!kind.of(p)) continue;
    bool fits = open && filled < most && (zero_stage < 2 || buckets.back().unit == unit);
    if (!fits) {
      buckets.push_back({.expert = kind.expert,
                         .late = kind.late,
                         .quantized = kind.quantized,
                         .zero_stage = zero_stage,
                         .unit = unit,
                         .size = 0,
                         .items = {}});
      open = true, filled = 0;
    }
    buckets.back().items.push_back({&p, 0});
    filled += p.numel();
  }
  for (size_t b = first; b < buckets.size(); ++b) pack(buckets[b], shards, rules.pad);
}

}  // namespace

std::vector<BucketPlan> plan_buckets(std::deque<Parameter>& parameters, const BucketRules& rules) {
  std::vector<BucketPlan> buckets;
  std::vector<int> unit_of;
  number_units(parameters, unit_of);
  for (bool expert : {false, true})
    for (bool late : {false, true})
      for (bool small : {false, true})
        plan_kind(parameters, unit_of, {expert, late, small}, rules, buckets);
  return buckets;
}

}  // namespace mtrain
