// The settings of datasets with span corruption (span_corruption.h), and what they mean for a
// tokenizer. Values and pure functions; thread-safe.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/config/fields.h"
#include "mtrain/data/span_corruption.h"
#include "mtrain/data/tokenizer.h"

namespace mtrain {

struct MT_API SpanSettings {
  SpanShares shares;
  int64_t sentinels = 100;
  std::string sentinel = "<extra_id_{}>", end_token;
  void bind(Fields& f);

  /// Sentinels that a text of `tokens` tokens needs.
  int64_t needed(int64_t tokens) const;
  /// The tokenizer's sentinels and end token for texts of `tokens` tokens, which fill a sample of
  /// `seq_length`. Throws Error(config) if `tokenizer` is null or lacks some of them.
  SpanCorruptionConfig corruption(const Tokenizer* tokenizer, int64_t tokens,
                                  int64_t seq_length) const;
};

/// The hash of the end token and of the first `sentinels` sentinels, for Dataset::identity().
MT_API std::string special_tokens_hash(const SpanCorruptionConfig& config, int64_t sentinels);

}  // namespace mtrain
