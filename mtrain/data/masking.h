// Masked language modelling (Devlin et al. 2018, arXiv:1810.04805, §3.1): some of a sample's tokens
// are predicted from the tokens around them, and most of these are masked. Random draws are
// functions of (seed, stream, sample), so a sample is always the same, on any rank.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/data/tokenizer.h"

namespace mtrain {

class SampleDraws;

/// The kind of an id. A special token is never predicted and never used as a random token.
enum class TokenKind : uint8_t {
  special,
  ordinary,
  continuation
};  // a continuation continues the previous token's word

/// The kind of every id of a vocabulary. Unused ids count as special. Continuations are
/// WordPiece's, "##ing".
MT_API std::vector<TokenKind> token_kinds(const Tokenizer& tokenizer);

struct MaskingConfig {
  double probability = 0.15;  // fraction of the ordinary tokens that are predicted
  double mask_share = 0.8;    // fraction of those that become the mask
  double random_share =
      0.1;                   // fraction that become a random ordinary token; the rest are unchanged
  bool whole_words = false;  // predict whole words
  int32_t mask = 0;
  std::vector<TokenKind> kinds;  // by id; ids beyond the end are special
};

/// Immutable; safe from any thread.
class MT_API Masking {
 public:
  /// Draws are a function of `seed`, `stream` and the sample. REQUIRES: an ordinary token exists
  /// when random_share > 0.
  Masking(MaskingConfig config, uint64_t seed, std::string_view stream);
  /// Chooses round(probability * ordinary tokens) of `tokens`, at least one if there is an ordinary
  /// token; with whole_words, as many words as fit into that number, at least one. Chosen tokens
  /// get their id as target, all others kIgnoredTarget. REQUIRES: equal sizes.
  void apply(uint64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets) const;

 private:
  TokenKind kind(int32_t id) const;
  void hide(int32_t& token, SampleDraws& draws) const;
  MaskingConfig config_;
  std::vector<int32_t> ordinary_;  // the ids from which random tokens are drawn
  uint64_t seed_, stream_;
};

}  // namespace mtrain
