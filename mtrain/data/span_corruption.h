// Span corruption (Raffel et al. 2020, arXiv:1910.10683): spans are cut out of a text, a sentinel
// in place of each, and are the targets, each behind its sentinel. How much is cut and where is
// T5's: so many tokens, in so many spans, divided at random. The draws are functions of (seed,
// stream, sample), so a sample is the same whenever it is asked for.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

/// What is cut out of a text.
struct SpanShares {
  double mask_probability = 0.15;  // share of the tokens that are cut out; above 0, below 1
  int64_t mean_span = 3;           // mean length of what is cut out; at least 1
  bool closing_sentinel = false;   // one more sentinel behind the last span
};

/// What a text of some length becomes.
struct SpanLengths {
  int64_t cut_tokens = 0, spans = 0;
  int64_t inputs = 0;  // the text that is left, a sentinel for each span, the end
  int64_t targets =
      0;  // each span behind its sentinel, the closing sentinel where one is wanted, the end
  bool operator==(const SpanLengths&) const = default;
};

/// Shares are rounded to the nearest, ties to even; at least one token is cut out and one stays.
/// REQUIRES: tokens >= 2.
MT_API SpanLengths span_lengths(int64_t tokens, const SpanShares& shares);
/// The longest text whose inputs and targets together take no more than `places`; 0 when none does.
MT_API int64_t longest_text(int64_t places, const SpanShares& shares);

struct SpanCorruptionConfig {
  SpanShares shares;
  std::vector<int32_t> sentinels;  // in the order of use
  int32_t end = 0;                 // the token behind inputs and behind targets
};

/// Immutable; owns what it is given; safe from any thread.
class MT_API SpanCorruption {
 public:
  /// For texts of `tokens` each. REQUIRES: as many sentinels as such a text has spans, and one more
  /// for a closing one.
  SpanCorruption(SpanCorruptionConfig config, int64_t tokens, uint64_t seed,
                 std::string_view stream);
  int64_t tokens() const { return tokens_; }
  const SpanLengths& lengths() const { return lengths_; }
  /// Fills `out` with inputs, then targets. Error(data) when the text holds a sentinel: what it
  /// becomes could not be told apart. REQUIRES: text.size() == tokens().
  void apply(uint64_t sample, std::span<const int32_t> text, std::vector<int32_t>& out) const;

 private:
  void refuse_sentinels(std::span<const int32_t> text) const;

  SpanCorruptionConfig config_;
  std::vector<int32_t> sorted_sentinels_;
  int64_t tokens_;
  SpanLengths lengths_;
  uint64_t seed_, stream_;
};

}  // namespace mtrain
