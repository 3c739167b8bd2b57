// Normalizers: what a tokenizer does to a text before it cuts it into words, in the kinds of
// Hugging Face's tokenizer.json, with their rules for which original characters the result stands
// for. Immutable; safe from any thread.
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
  /// Changes the text, which is well-formed UTF-8.
  virtual void apply(AlignedText& text) const = 0;
  /// Whether apply() would change nothing, where that is quickly told; false when not sure.
  virtual bool keeps(std::string_view text) const {
    (void)text;
    return false;
  }
};
using NormalizerPtr = std::unique_ptr<const Normalizer>;

enum class UnicodeForm : uint8_t { nfc, nfd, nfkc, nfkd };

/// A Unicode normalization form (UAX #15).
MT_API NormalizerPtr normalize_unicode(UnicodeForm form);
/// Each character's lower case, without regard to its neighbours.
MT_API NormalizerPtr lowercase();
/// Leaves out nonspacing marks.
MT_API NormalizerPtr strip_accents();
/// Leaves out white space at the ends.
MT_API NormalizerPtr strip(bool left, bool right);
/// SentencePiece's cleaning for machine translation: control characters out, odd blanks to blanks.
MT_API NormalizerPtr clean_nmt();
MT_API NormalizerPtr replace(Regex pattern, std::string content);
/// Puts a text before every text that is not empty.
MT_API NormalizerPtr prepend(std::string text);
/// Bytes as printable characters (byte_alphabet.h).
MT_API NormalizerPtr bytes_as_chars();

struct BertCleaning {
  bool clean_text = true, space_ideographs = true, strip_accents = true, lowercase = true;
};
/// BERT's (Devlin et al. 2018) BasicTokenizer before it cuts.
MT_API NormalizerPtr bert_normalizer(const BertCleaning& cleaning);
/// One after the other.
MT_API NormalizerPtr in_turn(std::vector<NormalizerPtr> steps);

/// A new text as characters, each with how many characters it is more than what it replaces: 0
/// replaces one, 1 is inserted and stands for what the one before it stands for, -n replaces one
/// and swallows n more.
struct CharChange {
  char32_t value = 0;
  int change = 0;
};
/// Makes the text these characters; `skipped` characters at its start are left out.
void transform(AlignedText& text, const std::vector<CharChange>& changes, size_t skipped = 0);

}  // namespace mtrain::tokenize
