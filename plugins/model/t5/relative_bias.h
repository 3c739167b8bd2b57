// The bias of attention by relative distance (Raffel et al. 2019, arXiv:1910.10683, 2.1): each head
// has one number for each bucket of distances. A value that holds a reference to its parameter; for
// the rank's own thread. Dimensions: H heads, B buckets, N distances.
#pragma once
#include "mtrain/autograd/span_attention.h"
#include "mtrain/nn/scope.h"
#include "t5_settings.h"

namespace mtrain::t5 {

/// The bucket of the distance key - query. Half of the buckets of each direction are for single
/// distances; the others cover logarithmic ranges up to max_distance. A decoder has one direction:
/// later keys are in bucket 0.
int64_t bucket_of(int64_t distance, bool bidirectional, int64_t buckets, int64_t max_distance);

class RelativeBias {
 public:
  /// For sequences of up to `length` tokens. Adds the parameter relative_bias [H, B] of the scope.
  RelativeBias(const T5Config& c, const Scope& stack, int64_t length, bool bidirectional);
  /// The bias of the rank's heads.
  DistanceBias operator()() const;

 private:
  Parameter& table_HB_;
  Tensor buckets_NB_;  // row n: 1 in the column of the bucket of distance n - zero_
  int64_t zero_;
};

}  // namespace mtrain::t5
