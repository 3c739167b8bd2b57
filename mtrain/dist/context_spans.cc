#include "mtrain/dist/context_spans.h"

#include <algorithm>

namespace mtrain {

void SpanCall::add(TokenRows queries, TokenRows keys, int64_t window, int64_t first_token) {
  int64_t offset = queries.at - keys.at;
  if (queries.rows <= 0 || keys.rows <= 0 || (causal && offset < 0)) return;
  if (window > 0) {
    int64_t before = std::max<int64_t>(0, offset - window + 1);  // keys that no query reaches
    if (before >= keys.rows) return;
    keys.row += before, keys.rows -= before, offset -= before;
    queries.rows = std::min(queries.rows, keys.rows + window - 1 - offset);
  }
  spans.push_back({static_cast<int32_t>(queries.row), static_cast<int32_t>(queries.rows),
                   static_cast<int32_t>(keys.row), static_cast<int32_t>(keys.rows),
                   static_cast<int32_t>(offset)});
  first_tokens.push_back(first_token);
}

void SpanCall::append(const SpanCall& other) {
  spans.insert(spans.end(), other.spans.begin(), other.spans.end());
  first_tokens.insert(first_tokens.end(), other.first_tokens.begin(), other.first_tokens.end());
}

namespace {

/// With causal attention, all queries attend to the earlier chunk of an earlier member, and none to
/// its later chunk; for a later member, this rank's later chunk attends to both of its chunks. Own
/// rows are in order, so a later row is a later token.
SpanCall joint_call(const ContextRing& ring, bool causal, int me, int other) {
  SpanCall call{.causal = causal && other == me};
  for (int64_t s = 0; s < ring.sequences(); ++s) {
    RowRange queries{ring.row(me, s), ring.length(me, s)},
        keys{ring.row(other, s), ring.length(other, s)};
    if (causal && other > me) queries = {queries.first + ring.early(me, s), ring.late(me, s)};
    if (causal && other < me) keys.rows = ring.early(other, s);
    if (queries.rows > 0 && keys.rows > 0)
      call.spans.push_back({static_cast<int32_t>(queries.first), static_cast<int32_t>(queries.rows),
                            static_cast<int32_t>(keys.first), static_cast<int32_t>(keys.rows), 0});
  }
  return call;
}

TokenRows chunk_of(const ContextRing& ring, int member, int64_t s, bool late) {
  int64_t row = ring.row(member, s);
  if (!late) return {.row = row, .at = ring.early_at(member, s), .rows = ring.early(member, s)};
  return {.row = row + ring.early(member, s),
          .at = ring.late_at(member, s),
          .rows = ring.late(member, s)};
}

}  // namespace

std::vector<SpanCall> ring_calls(const ContextBlock& block, const ContextRing& ring,
                                 const std::vector<int64_t>& starts, int me, int other) {
  const AttentionScores& scores = block.scores;
  if (scores.window == 0 && block.dropout.p == 0)
    return {joint_call(ring, scores.causal, me, other)};
  // Windows and dropout depend on the distance of query and key, which chunks have each their own.
  std::vector<SpanCall> calls;
  for (bool crossed : {false, true}) {
    SpanCall call{.causal = scores.causal};
    for (int64_t s = 0; s < ring.sequences(); ++s)
      for (bool late : {false, true}) {
        TokenRows queries = chunk_of(ring, me, s, late);
        call.add(queries, chunk_of(ring, other, s, late != crossed), scores.window,
                 block.first_token + starts[static_cast<size_t>(s)] + queries.at);
      }
    calls.push_back(std::move(call));
  }
  return calls;
}

}  // namespace mtrain
