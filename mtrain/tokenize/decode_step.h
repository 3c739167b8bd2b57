// DecodeStep: one step of decoding, from the texts of tokens to one text; the kinds of Hugging
// Face's tokenizer.json. Immutable; safe from any thread.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "mtrain/tokenize/pre_tokenizer.h"
#include "mtrain/tokenize/regex.h"

namespace mtrain::tokenize {

class MT_API DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  /// Transforms the texts; may join them.
  virtual void apply(std::vector<std::string>& texts) const = 0;
};
using DecodeStepPtr = std::unique_ptr<const DecodeStep>;

/// Converts characters of the byte alphabet to bytes, except in a text that has any other
/// character; joins all texts into one.
MT_API DecodeStepPtr decode_byte_level();
/// Removes the prefix of tokens inside words and adds a space before other tokens; `cleanup`
/// removes spaces before English punctuation.
MT_API DecodeStepPtr decode_word_piece(std::string prefix, bool cleanup);
/// Converts `replacement` to spaces; removes those of the first token, unless the scheme is
/// `never`.
MT_API DecodeStepPtr decode_metaspace(std::string replacement, PrependScheme scheme);
/// Converts the suffix of a word's last token to a space.
MT_API DecodeStepPtr decode_bpe_suffix(std::string suffix);
/// Replaces each match of `pattern` by `content`, in each text that is valid UTF-8.
MT_API DecodeStepPtr decode_replace(Regex pattern, std::string content);
/// Joins all texts into one.
MT_API DecodeStepPtr decode_fuse();
/// Removes up to `start` and `stop` occurrences of `content` at the beginning and end of each
/// token.
MT_API DecodeStepPtr decode_strip(std::string content, int64_t start, int64_t stop);
/// Joins each run of tokens <0x00> to <0xFF> into one text of their bytes; a run that is not UTF-8
/// becomes one U+FFFD per token, unless it is last, where later tokens may complete it.
MT_API DecodeStepPtr decode_byte_fallback();
/// Connectionist temporal classification (Graves et al. 2006): removes repeats and the pad token.
MT_API DecodeStepPtr decode_ctc(std::string pad, std::string word_delimiter, bool cleanup);

/// The value of "<0x41>", with exactly two hex digits of either case; -1 for any other text.
MT_API int byte_token_value(std::string_view text);

}  // namespace mtrain::tokenize
