// WordPiece (Devlin et al. 2018, arXiv:1810.04805): repeatedly takes the longest token that is a
// prefix of the rest of the word. Immutable; safe from any thread.
#pragma once
#include <string>

#include "mtrain/tokenize/token_table.h"
#include "mtrain/tokenize/word_model.h"

namespace mtrain::tokenize {

struct WordPieceOptions {
  std::string inner_prefix = "##";  // the prefix of tokens inside a word
  int32_t unknown = 0;              // for a word that cannot be split into tokens
  int64_t max_chars = 100;          // a longer word is unknown
};

class MT_API WordPiece final : public WordModel {
 public:
  /// `tokens` must outlive this object.
  WordPiece(const TokenTable& tokens, WordPieceOptions options)
      : tokens_(tokens), options_(std::move(options)) {}
  void encode(std::string_view word, WordTokens& out) const override;

 private:
  const TokenTable& tokens_;
  WordPieceOptions options_;
};

}  // namespace mtrain::tokenize
