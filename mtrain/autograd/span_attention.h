// Attention of queries to keys and values of their own tensors, with a bias by distance: what
// encoders with decoders need (Raffel et al. 2019, arXiv:1910.10683, 2.1). Conventions as in ops.h;
// Q query rows, K key rows.
#pragma once
#include <memory>
#include <vector>

#include "mtrain/autograd/ops.h"
#include "mtrain/tensor/kernel_table.h"

namespace mtrain {

/// Which queries attend to which keys. On the host. No two spans share a query or a key, and each
/// query is in a span; keys that are in none get no gradient.
using AttentionSpans = std::shared_ptr<const std::vector<AttentionSpan>>;

/// The bias of the scores of each head. Row h of `table` belongs to head h; column zero + d is
/// added to the score of the key at position query + d (d < 0: an earlier key).
struct DistanceBias {
  Tensor table_HN = {};  // in the dtype of the queries; undefined: no bias
  int64_t zero = 0;
};

/// o [Q, H*E] = softmax(scale * q kᵀ + bias) v within each span. q [Q, H*E], k and v [K, H*E], for
/// `heads` heads. Throws Error(bug) if `scores` has a window, a cap or dropout.
MT_API Tensor span_attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads,
                             const AttentionSpans& spans, const AttentionScores& scores,
                             const DistanceBias& bias = {});

}  // namespace mtrain
