// Charsmap: SentencePiece's precompiled normalization rules: a double-array trie (Aoe 1989;
// Darts-clone's layout) from pieces of text to their replacements. The constructor checks the whole
// blob. Immutable; safe from any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/tokenize/normalizer.h"

namespace mtrain::tokenize {

class MT_API Charsmap {
 public:
  /// Error(data) that names `where` when the blob is damaged.
  Charsmap(std::string_view blob, const std::string& where);

  struct Match {
    size_t bytes = 0;  // the matched bytes of the text
    std::string_view replacement;
  };
  /// The longest or the shortest rule that is a prefix of `text`.
  std::optional<Match> longest(std::string_view text) const { return find(text, true); }
  std::optional<Match> shortest(std::string_view text) const { return find(text, false); }

 private:
  std::optional<Match> find(std::string_view text, bool longest) const;
  std::vector<uint32_t> units_;
  std::string strings_;  // each terminated by a zero byte
};

/// A normalizer that applies such rules like Hugging Face: by grapheme cluster, then by character.
MT_API NormalizerPtr precompiled(Charsmap map);

/// Decodes base64. Error(data) that names `where` for any other text.
MT_API std::string decode_base64(std::string_view text, const std::string& where);

}  // namespace mtrain::tokenize
