// Internal to context parallelism: which rows of queries attend to which rows of keys, as calls of
// the attention kernels. Value types; for the rank's own thread.
#pragma once
#include <vector>

#include "mtrain/dist/context_block.h"
#include "mtrain/dist/context_slice.h"

namespace mtrain {

/// Rows that are consecutive tokens of a sequence: the first row, and its position in the sequence.
struct TokenRows {
  int64_t row = 0, at = 0, rows = 0;
};

/// One call of the attention kernels. REQUIRES: no query row and no key row is in two of its spans,
/// since backward adds to their gradients.
struct SpanCall {
  std::vector<AttentionSpan> spans = {};
  std::vector<int64_t> first_tokens = {};  // of each span's first query
  bool causal = false;

  /// Adds attention of `queries`, which begin at token `first_token`, to `keys`, without the rows
  /// that no window of `window` tokens reaches (0: no window). REQUIRES: causal: the keys begin
  /// where the queries do, or are all before or all after them.
  void add(TokenRows queries, TokenRows keys, int64_t window, int64_t first_token);
  void append(const SpanCall& other);
  ContextBlock::AttentionMask mask() const { return {spans, causal, first_tokens}; }
};

/// The calls for the queries of member `me` of a ring and the keys of member `other`. starts[s]:
/// the first token of sequence s in the micro-batch. The calls for a member's own keys are such
/// that the first one has every query.
std::vector<SpanCall> ring_calls(const ContextBlock& block, const ContextRing& ring,
                                 const std::vector<int64_t>& starts, int me, int other);

}  // namespace mtrain
