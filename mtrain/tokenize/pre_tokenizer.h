// Pre-tokenizers: where words begin and end, in the kinds of Hugging Face's tokenizer.json. Some
// change the text as well. Immutable; safe from any thread.
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

/// A text and which parts of it are words.
struct Words {
  AlignedText text;
  std::vector<TextSpan> ranges;  // of text.text, from left to right
};

class MT_API PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Cuts every range further. REQUIRES: well-formed UTF-8.
  virtual void apply(Words& words) const = 0;
  /// Whether apply() looks at where in the original text a range begins.
  virtual bool wants_origin() const { return false; }
};
using PreTokenizerPtr = std::unique_ptr<const PreTokenizer>;

/// What becomes of the pieces that match.
enum class SplitBehavior : uint8_t {
  removed,
  isolated,
  merged_with_previous,
  merged_with_next,
  contiguous
};

using CharTest = std::function<bool(char32_t)>;
/// Cuts where a pattern matches; `invert`: where it does not.
MT_API PreTokenizerPtr split_regex(Regex pattern, SplitBehavior behavior, bool invert);
/// The same, isolated, by a scanner.
MT_API PreTokenizerPtr split_known(KnownPattern pattern);
/// Cuts at characters.
MT_API PreTokenizerPtr split_chars(CharTest test, SplitBehavior behavior);
/// `\w+|[^\w\s]+`.
MT_API PreTokenizerPtr split_words_and_marks();
/// Cuts before each run of `mark` that follows something else. For vocabularies in which no token
/// crosses such a place the result is the same as without, and words can be looked up.
MT_API PreTokenizerPtr split_before_runs(std::string mark);
/// Cuts where the script changes. As in Hugging Face's library, what stands before the first
/// character of any script is left out.
MT_API PreTokenizerPtr split_scripts();
/// Pieces of so many characters.
MT_API PreTokenizerPtr split_every(int64_t chars);

struct ByteLevelSplit {
  bool add_prefix_space = false, use_regex = true, to_chars = true;
};
/// GPT-2's: a blank before, its pattern, and bytes as characters.
MT_API PreTokenizerPtr byte_level(const ByteLevelSplit& options);

enum class PrependScheme : uint8_t { always, first, never };
/// Blanks as `replacement`, one before the text, and a cut before each.
MT_API PreTokenizerPtr metaspace(std::string replacement, PrependScheme scheme, bool split);
MT_API PreTokenizerPtr in_turn(std::vector<PreTokenizerPtr> steps);

/// ASCII punctuation or a character of category P.
MT_API bool is_punctuation(char32_t c);
MT_API bool is_white_space(char32_t c);

}  // namespace mtrain::tokenize
