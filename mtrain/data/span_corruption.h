// Span corruption (Raffel et al. 2020, arXiv:1910.10683): replaces spans of a text by sentinels;
// the targets are the spans, each after its sentinel. As in T5, the number of removed tokens and of
// spans is fixed, and their lengths are random. Draws are functions of (seed, stream, sample), so a
// sample is always the same.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/data/dataset.h"

namespace mtrain {

/// How much is removed from a text.
struct SpanShares {
  double mask_probability = 0.15;  // fraction of the tokens that are removed; above 0, below 1
  int64_t mean_span = 3;           // mean length of a span; at least 1
  bool closing_sentinel = false;   // one more sentinel after the last span
};

/// The lengths of inputs and targets for a text of a given length.
struct SpanLengths {
  int64_t removed_tokens = 0, spans = 0;
  int64_t inputs = 0;  // the remaining text, one sentinel per span, the end token
  int64_t targets =
      0;  // each span after its sentinel, the optional closing sentinel, the end token
  bool operator==(const SpanLengths&) const = default;
};

/// Rounds to the nearest integer, ties to even; removes at least one token and keeps at least one.
/// REQUIRES: tokens >= 2.
MT_API SpanLengths span_lengths(int64_t tokens, const SpanShares& shares);
/// The longest text whose inputs and targets together take at most `places` tokens; 0 when there is
/// none.
MT_API int64_t longest_text(int64_t places, const SpanShares& shares);

struct SpanCorruptionConfig {
  SpanShares shares;
  std::vector<int32_t> sentinels;  // in the order of use
  int32_t end = 0;                 // the token after the inputs and after the targets
};

/// Owns its configuration. Immutable; safe from any thread.
class MT_API SpanCorruption {
 public:
  /// For texts of `tokens` tokens. REQUIRES: one sentinel per span of such a text, and one more for
  /// a closing sentinel.
  SpanCorruption(SpanCorruptionConfig config, int64_t tokens, uint64_t seed,
                 std::string_view stream);
  int64_t tokens() const { return tokens_; }
  const SpanLengths& lengths() const { return lengths_; }
  /// Fills `out` with inputs, then targets. Error(data) when the text contains a sentinel, since
  /// the result would be ambiguous. REQUIRES: text.size() == tokens().
  void apply(uint64_t sample, std::span<const int32_t> text, std::vector<int32_t>& out) const;

 private:
  void refuse_sentinels(std::span<const int32_t> text) const;

  SpanCorruptionConfig config_;
  std::vector<int32_t> sorted_sentinels_;
  int64_t tokens_;
  SpanLengths lengths_;
  uint64_t seed_, stream_;
};

/// Reads sample `index` of `texts` and returns its ids without the removed spans, followed by the
/// spans. `name`: the data's, for errors. Throws what get() and apply() throw.
MT_API std::vector<int32_t> corrupted_ids(const SampleSource& texts,
                                          const SpanCorruption& corruption, int64_t index,
                                          const std::string& name);

}  // namespace mtrain
