// Attention of the next tokens of texts to the cached keys and values of the earlier ones, for
// generation: without gradients. Conventions as in ops.h. The rows of a cache, kv [rows,
// groups*2*E], hold a key and a value for each group.
#pragma once
#include "mtrain/autograd/span_attention.h"

namespace mtrain {

/// Copies the keys and values of the queries of each span from qkv [T, layout.width()] to the last
/// rows of its keys.
MT_API void store_keys(const Tensor& qkv, const HeadLayout& layout, const Tensor& kv,
                       const AttentionSpans& spans);

/// o [T, H*E] of the queries of qkv: query i of a span attends to the first offset + i + 1 of its
/// keys, as attention() does within a sequence. REQUIRES: no gradients are computed; scores.causal;
/// the spans have all T queries, in order, and offset + queries = keys.
MT_API Tensor cached_attention(const Tensor& qkv, const HeadLayout& layout, const Tensor& kv,
                               const AttentionSpans& spans, const AttentionScores& scores,
                               const Tensor& sinks_H = {});

}  // namespace mtrain
