#include "mtrain/optim/bucket_plan.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "mtrain/nn/precision.h"

namespace mtrain {
namespace {

struct BucketSpec {
  const char* name;
  int64_t size;
  bool expert = false, late = false;
};

std::deque<Parameter> parameters_of(const std::vector<BucketSpec>& specs) {
  std::deque<Parameter> parameters;
  for (const BucketSpec& spec : specs) {
    Parameter& p = parameters.emplace_back();
    p.name = spec.name, p.global = p.local = {spec.size}, p.expert = spec.expert;
    if (spec.late) p.partial.push_back({nullptr, 0, spec.size});
  }
  return parameters;
}

const std::vector<BucketSpec> kModel = {{"embed.weight", 100},
                                        {"layers.0.norm.weight", 8, false, true},
                                        {"layers.0.mlp.weight", 300},
                                        {"layers.0.experts.up", 64, true},
                                        {"layers.1.norm.weight", 8, false, true},
                                        {"layers.1.mlp.weight", 301},
                                        {"layers.1.experts.up", 65, true},
                                        {"norm.weight", 9},
                                        {"head.weight", 50}};

std::vector<std::string> names(const BucketPlan& bucket) {
  std::vector<std::string> out;
  for (const BucketItem& item : bucket.items) out.push_back(item.parameter->name);
  return out;
}

TEST_CASE("bucket plan: weights that may be codes share no bucket with others") {
  QuantizedWeight quantized;
  for (int zero_stage : {0, 1, 3}) {
    auto parameters = parameters_of(kModel);
    for (Parameter& p : parameters)
      if (p.name.find("mlp") != p.name.npos || p.name.find("up") != p.name.npos)
        p.quantized = &quantized;
    int seen = 0;
    for (const BucketPlan& b : plan_buckets(
             parameters, {.zero_stage = zero_stage, .dense_shards = 2, .expert_shards = 2}))
      for (const BucketItem& item : b.items) {
        CHECK(b.quantized == (item.parameter->quantized != nullptr));
        seen += b.quantized;
      }
    CHECK(seen == 4);
  }
}

TEST_CASE(
    "bucket plan: every parameter once, aligned, apart, dense first, late ones by themselves, "
    "shards equal") {
  for (int zero_stage : {0, 1, 2, 3})
    for (int shards : {1, 2, 3, 7})
      for (int64_t size : {1, 200, 0}) {
        auto parameters = parameters_of(kModel);
        auto plans = plan_buckets(parameters, {.zero_stage = zero_stage,
                                               .bucket_size = size,
                                               .dense_shards = shards,
                                               .expert_shards = 2});
        std::vector<std::string> seen;
        bool experts = false;
        for (const BucketPlan& b : plans) {
          CHECK(experts <= b.expert);
          experts = b.expert;
          int64_t num_shards = b.expert ? 2 : shards, used = 0;
          CHECK(b.size % (num_shards * kBucketAlignment) == 0);
          std::vector<std::pair<int64_t, int64_t>> places;
          for (const BucketItem& item : b.items) {
            CHECK(item.begin % kBucketAlignment == 0);
            CHECK(item.end() <= b.size);
            CHECK(item.parameter->expert == b.expert);
            CHECK(!item.parameter->partial.empty() == b.late);
            if (zero_stage >= 2 && !b.late)
              CHECK(block_of(item.parameter->name) == block_of(b.items[0].parameter->name));
            places.emplace_back(item.begin, item.end());
            seen.push_back(item.parameter->name);
            used += item.parameter->numel();
          }
          CHECK(b.zero_stage == (b.late ? std::min(zero_stage, 1) : zero_stage));
          std::sort(places.begin(), places.end());
          for (size_t i = 1; i < places.size(); ++i) CHECK(places[i - 1].second <= places[i].first);
          CHECK(b.size <
                used + kBucketAlignment * (static_cast<int64_t>(b.items.size()) + num_shards));
        }
        CHECK(seen.size() == kModel.size());
        std::sort(seen.begin(), seen.end());
        CHECK(std::unique(seen.begin(), seen.end()) == seen.end());
      }
}

TEST_CASE("bucket plan: buckets close when full; from zero 2 on with their block") {
  auto parameters = parameters_of(kModel);
  auto by_size = plan_buckets(
      parameters, {.zero_stage = 1, .bucket_size = 400, .dense_shards = 2, .expert_shards = 2});
  REQUIRE(by_size.size() == 4);
  CHECK(names(by_size[0]) == std::vector<std::string>{"embed.weight", "layers.0.mlp.weight"});
  CHECK(names(by_size[1]) ==
        std::vector<std::string>{"layers.1.mlp.weight", "norm.weight", "head.weight"});
  CHECK(by_size[2].late);
  CHECK(by_size[3].expert);
  auto by_block =
      plan_buckets(parameters, {.zero_stage = 3, .dense_shards = 2, .expert_shards = 2});
  REQUIRE(by_block.size() == 7);
  CHECK(names(by_block[3]) == std::vector<std::string>{"norm.weight", "head.weight"});
  CHECK(by_block[1].part == by_block[5].part);  // a block and its experts
  for (size_t i = 7; i < parameters.size(); ++i) parameters[i].stage = 1;
  parameters[8].stage = 3;  // of the same rank: each stage has its values for itself
  auto by_stage =
      plan_buckets(parameters, {.zero_stage = 3, .dense_shards = 2, .expert_shards = 2});
  REQUIRE(by_stage.size() == 8);
  CHECK(names(by_stage[3]) == std::vector<std::string>{"norm.weight"});
  CHECK(names(by_stage[4]) == std::vector<std::string>{"head.weight"});
  CHECK(by_stage[3].part < by_stage[4].part);
  CHECK(default_bucket_size(8) == 40'000'000);
  CHECK(default_bucket_size(64) == 64'000'000);
}

TEST_CASE("bucket plan: in the order of the parts that the model declares") {
  auto parameters =
      parameters_of({{"head.weight", 50}, {"layers.1.mlp", 60}, {"layers.0.mlp", 70}});
  for (size_t i = 0; i < 3; ++i) parameters[i].part = static_cast<int16_t>(2 - i);
  auto plans = plan_buckets(parameters, {.bucket_size = 100});
  REQUIRE(plans.size() == 2);
  CHECK(names(plans[0]) == std::vector<std::string>{"layers.0.mlp", "layers.1.mlp"});
  CHECK(plans[0].items[1].part == PartId{0, 1});
  CHECK(names(plans[1]) == std::vector<std::string>{"head.weight"});
  CHECK(plan_buckets(parameters, {.zero_stage = 2}).size() == 3);
}

}  // namespace
}  // namespace mtrain
