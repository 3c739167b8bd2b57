// Masked language modelling (Devlin et al. 2018, arXiv:1810.04805, §3.1): some of a sample's tokens
// are to be predicted from what stands around them, and most of those are hidden. Draws are
// functions of (seed, stream, sample), so a sample is the same whenever, and by whichever rank, it
// is asked for.
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

/// What an id is to the masking: a special token is never predicted, and no random token is one.
enum class TokenKind : uint8_t {
  special,
  ordinary,
  continuation
};  // the last goes on with the word before it

/// The kind of every id of a vocabulary. Ids that stand for nothing count as special. Continuations
/// are WordPiece's, "##ing".
MT_API std::vector<TokenKind> token_kinds(const Tokenizer& tokenizer);

struct MaskingConfig {
  double probability = 0.15;  // share of the ordinary tokens that are to be predicted
  double mask_share = 0.8;    // share of those that become the mask
  double random_share = 0.1;  // share that become any ordinary token; the rest stay as they are
  bool whole_words = false;   // a word is predicted as a whole, or not at all
  int32_t mask = 0;
  std::vector<TokenKind> kinds;  // by id; ids beyond are special
};

/// Immutable; safe from any thread.
class MT_API Masking {
 public:
  /// `stream`: what the draws are a function of beside seed and sample. REQUIRES: an ordinary token
  /// where random_share > 0.
  Masking(MaskingConfig config, uint64_t seed, std::string_view stream);
  /// Chooses round(probability * ordinary tokens) of `tokens`, at least one where there is an
  /// ordinary token; of whole words as many as fit into that number, at least one. Those get their
  /// id as target, all others kIgnoredTarget. REQUIRES: equal sizes.
  void apply(uint64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets) const;

 private:
  TokenKind kind(int32_t id) const;
  void hide(int32_t& token, SampleDraws& draws) const;
  MaskingConfig config_;
  std::vector<int32_t> ordinary_;  // what random tokens are drawn from
  uint64_t seed_, stream_;
};

}  // namespace mtrain
