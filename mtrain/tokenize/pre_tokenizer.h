// Pre-tokenizers: split a text into words; the kinds of Hugging Face's tokenizer.json. Some also
// change the text. Immutable; safe from any thread.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/tokenize/aligned_text.h"
#include "mtrain/tokenize/regex.h"
#include "mtrain/tokenize/word_scanner.h"

namespace mtrain::tokenize {

/// A text and its words.
struct Words {
  AlignedText text;
  std::vector<TextSpan> ranges;  // of text.text, from left to right
};

class MT_API PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Splits every range further. REQUIRES: well-formed UTF-8.
  virtual void apply(Words& words) const = 0;
  /// True when apply() uses the position of a range in the original text.
  virtual bool wants_origin() const { return false; }
};
using PreTokenizerPtr = std::unique_ptr<const PreTokenizer>;

/// The treatment of matching pieces.
enum class SplitBehavior : uint8_t {
  removed,
  isolated,
  merged_with_previous,
  merged_with_next,
  contiguous
};

using CharTest = std::function<bool(char32_t)>;
/// Splits at matches of a pattern; `invert`: between them.
MT_API PreTokenizerPtr split_regex(Regex pattern, SplitBehavior behavior, bool invert);
/// The same with SplitBehavior::isolated, by a hand-written scanner.
MT_API PreTokenizerPtr split_known(KnownPattern pattern);
/// Splits at characters that pass `test`.
MT_API PreTokenizerPtr split_chars(CharTest test, SplitBehavior behavior);
/// `\w+|[^\w\s]+`.
MT_API PreTokenizerPtr split_words_and_marks();
/// Splits before each run of `mark` that follows another character. For vocabularies without tokens
/// across such a boundary the encoding does not change, and word caches can be used.
MT_API PreTokenizerPtr split_before_runs(std::string mark);
/// Splits where the script changes. As in Hugging Face's library, text before the first character
/// of any script is dropped.
MT_API PreTokenizerPtr split_scripts();
/// Pieces of `chars` characters.
MT_API PreTokenizerPtr split_every(int64_t chars);

struct ByteLevelSplit {
  bool add_prefix_space = false, use_regex = true, to_chars = true;
};
/// GPT-2's: prepends a space, splits by its pattern, converts bytes to characters.
MT_API PreTokenizerPtr byte_level(const ByteLevelSplit& options);

enum class PrependScheme : uint8_t { always, first, never };
/// Converts spaces to `replacement`, prepends one, and splits before each.
MT_API PreTokenizerPtr metaspace(std::string replacement, PrependScheme scheme, bool split);
/// Applies pre-tokenizers one after the other.
MT_API PreTokenizerPtr in_turn(std::vector<PreTokenizerPtr> steps);

/// ASCII punctuation or a character of category P.
MT_API bool is_punctuation(char32_t c);
MT_API bool is_white_space(char32_t c);

}  // namespace mtrain::tokenize
