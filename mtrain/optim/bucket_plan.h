// Which parameters travel together, and where each lies in its bucket: a flat stretch of elements
// that is cut into equal shards, one for each rank that shares it. Pure arithmetic, the same on all
// ranks that hold the same parameters. Values.
#pragma once
#include <deque>
#include <vector>

#include "mtrain/nn/model_parts.h"

namespace mtrain {

/// Parameters and shards begin at multiples of as many elements: whole cache lines, of codes half
/// of one.
inline constexpr int64_t kBucketAlignment = 32;
/// With padding, a bucket is a multiple of so many elements: messages of such sizes keep NCCL at
/// its full bandwidth (Megatron-LM, megatron/core/distributed/param_and_grad_buffer.py).
inline constexpr int64_t kBucketPadding = 65536;

struct BucketItem {
  Parameter* parameter;
  int64_t begin;  // its first element in the bucket
  int64_t end() const { return begin + parameter->numel(); }
};

struct BucketPlan {
  bool expert = false;
  /// Holds gradients of which ranks of other axes have summands (Parameter::partial): they are
  /// complete only at the end of a step.
  bool late = false;
  /// Of weights whose values may be codes. They are by themselves whether they are or not: so
  /// neither changes a bit.
  bool quantized = false;
  int zero_stage =
      0;  // what ranks share of it: 0 nothing, 1 optimizer state, 2 gradients too, 3 values too
  PartId part;  // of the first parameter; zero 3: buckets of one part have their values at the
                // same time
  int64_t size =
      0;  // elements with what lies between parameters; a multiple of the number of shards
  std::vector<BucketItem> items;
};

struct BucketRules {
  int zero_stage = 0;
  int64_t bucket_size =
      0;  // a bucket closes when it has as many elements; 0: default_bucket_size()
  int dense_shards = 1, expert_shards = 1;
  bool pad = false;  // to a multiple of kBucketPadding
};

/// max(40,000,000, 1,000,000 * ranks): with more ranks, larger messages keep the network busy
/// (Megatron-LM, megatron/core/distributed/distributed_data_parallel.py).
MT_API int64_t default_bucket_size(int ranks);
/// Dense buckets before those of experts, each kind in the order of the parameters. From zero 2 on,
/// where a bucket's memory comes and goes, none reaches over a block, nor over what comes before,
/// between and behind blocks.
MT_API std::vector<BucketPlan> plan_buckets(std::deque<Parameter>& parameters,
                                            const BucketRules& rules);

}  // namespace mtrain
