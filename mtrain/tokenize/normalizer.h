// Normalizers: transform a text before it is split into words; the kinds of Hugging Face's
// tokenizer.json, with their rules for the alignment with the original text. Immutable; safe from
// any thread.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/tokenize/aligned_text.h"
#include "mtrain/tokenize/regex.h"

namespace mtrain::tokenize {

class MT_API Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Transforms the text, which is well-formed UTF-8.
  virtual void apply(AlignedText& text) const = 0;
  /// True when apply() would not change the text and a quick check can show it; otherwise false.
  virtual bool keeps(std::string_view text) const {
    (void)text;
    return false;
  }
};
using NormalizerPtr = std::unique_ptr<const Normalizer>;

enum class UnicodeForm : uint8_t { nfc, nfd, nfkc, nfkd };

/// A Unicode normalization form (UAX #15).
MT_API NormalizerPtr normalize_unicode(UnicodeForm form);
/// Converts each character to lower case, independent of its neighbours.
MT_API NormalizerPtr lowercase();
/// Removes nonspacing marks.
MT_API NormalizerPtr strip_accents();
/// Removes white space at the ends.
MT_API NormalizerPtr strip(bool left, bool right);
/// SentencePiece's cleaning for machine translation: removes control characters, converts unusual
/// spaces to spaces.
MT_API NormalizerPtr clean_nmt();
/// Replaces each match of `pattern` by `content`.
MT_API NormalizerPtr replace(Regex pattern, std::string content);
/// Prepends a text to every text that is not empty.
MT_API NormalizerPtr prepend(std::string text);
/// Converts bytes to printable characters (byte_alphabet.h).
MT_API NormalizerPtr bytes_as_chars();

struct BertCleaning {
  bool clean_text = true, space_ideographs = true, strip_accents = true, lowercase = true;
};
/// The normalization of BERT's BasicTokenizer (Devlin et al. 2018).
MT_API NormalizerPtr bert_normalizer(const BertCleaning& cleaning);
/// Applies normalizers one after the other.
MT_API NormalizerPtr in_turn(std::vector<NormalizerPtr> steps);

/// A character of a new text. `change`: 0 replaces one character; 1 is inserted and represents the
/// same text as the previous character; -n replaces one character and removes n more.
struct CharChange {
  char32_t value = 0;
  int change = 0;
};
/// Replaces the text by these characters, after removing `skipped` characters at its start.
void transform(AlignedText& text, const std::vector<CharChange>& changes, size_t skipped = 0);

}  // namespace mtrain::tokenize
