// Assigns parameters to buckets. A bucket is a flat range of elements that is communicated as a
// whole and split into equal shards, one per rank that shares it. Pure arithmetic with the same
// result on all ranks that hold the same parameters. Values.
#pragma once
#include <deque>
#include <vector>

#include "mtrain/nn/model_parts.h"

namespace mtrain {

/// Parameters and shards begin at multiples of this number of elements: whole cache lines, or half
/// a line of codes.
inline constexpr int64_t kBucketAlignment = 32;
/// With padding, the size of a bucket is a multiple of this number of elements, with which NCCL
/// reaches its full bandwidth (Megatron-LM, megatron/core/distributed/param_and_grad_buffer.py).
inline constexpr int64_t kBucketPadding = 65536;

struct BucketItem {
  Parameter* parameter;
  int64_t begin;     // its first element in the bucket
  PartId part = {};  // of the model
  int64_t end() const { return begin + parameter->numel(); }
};

struct BucketPlan {
  bool expert = false;
  /// Has gradients that are partial sums over other axes (Parameter::partial): they are complete
  /// only at the end of a step.
  bool late = false;
  /// Holds the weights that may be stored as FP8 codes (ShardingOptions::codes). They get separate
  /// buckets even if they are not, so that results are the same with and without codes.
  bool quantized = false;
  int zero_stage =
      0;        // what is sharded: 0 nothing, 1 optimizer state, 2 also gradients, 3 also values
  PartId part;  // of the first parameter; zero 3: the buckets of a part are gathered together
  int64_t size = 0;  // number of elements with padding; a multiple of the number of shards
  std::vector<BucketItem> items;
};

struct BucketRules {
  int zero_stage = 0;
  int64_t bucket_size =
      0;  // a bucket is complete when it has this many elements; 0: default_bucket_size()
  int dense_shards = 1, expert_shards = 1;
  bool pad = false;  // to a multiple of kBucketPadding
};

/// max(40,000,000, 1,000,000 * ranks): with more ranks, larger messages keep the network busy
/// (Megatron-LM, megatron/core/distributed/distributed_data_parallel.py).
MT_API int64_t default_bucket_size(int ranks);
/// Plans dense buckets of trained parameters, then buckets of experts. Parameters that differ in
/// `expert`, `late` or `quantized` (BucketPlan) are in different buckets; those that agree are in
/// the order of the model's parts. From zero 2 on, where buckets are allocated and freed during a
/// step, no bucket crosses the boundary of a part of the model: a block, or what is before, between
/// or after the blocks. `late` buckets have at most zero 1.
MT_API std::vector<BucketPlan> plan_buckets(std::deque<Parameter>& parameters,
                                            const BucketRules& rules);

}  // namespace mtrain
