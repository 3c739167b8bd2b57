// DecodeStep: one step from the texts of tokens back to a text, in the kinds of Hugging Face's
// tokenizer.json. Immutable; safe from any thread.
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
  /// Changes the texts; may join them.
  virtual void apply(std::vector<std::string>& texts) const = 0;
};
using DecodeStepPtr = std::unique_ptr<const DecodeStep>;

/// Characters of the byte alphabet to bytes; a text with any other character stays as it is.
MT_API DecodeStepPtr decode_byte_level();
/// Tokens inside words lose their prefix, others get a blank; `cleanup` takes English blanks before
/// marks away.
MT_API DecodeStepPtr decode_word_piece(std::string prefix, bool cleanup);
/// `replacement` to blanks; those of the first token go, unless the scheme is never.
MT_API DecodeStepPtr decode_metaspace(std::string replacement, PrependScheme scheme);
/// The suffix of a word's last token becomes a blank.
MT_API DecodeStepPtr decode_bpe_suffix(std::string suffix);
MT_API DecodeStepPtr decode_replace(Regex pattern, std::string content);
MT_API DecodeStepPtr decode_fuse();
/// Takes up to so many `content` away at each token's ends.
MT_API DecodeStepPtr decode_strip(std::string content, int64_t start, int64_t stop);
/// Runs of <0x00> to <0xFF> to bytes; a run inside the text that is no UTF-8 becomes U+FFFD for
/// each.
MT_API DecodeStepPtr decode_byte_fallback();
/// Connectionist temporal classification (Graves et al. 2006): repeats and the pad token go.
MT_API DecodeStepPtr decode_ctc(std::string pad, std::string word_delimiter, bool cleanup);

/// The value of "<0x41>"; -1 for any other text.
MT_API int byte_token_value(std::string_view text);

}  // namespace mtrain::tokenize
