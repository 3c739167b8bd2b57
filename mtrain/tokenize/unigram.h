// The unigram language model of SentencePiece (Kudo 2018, arXiv:1804.10959): of all ways to split a
// text into tokens, the one with the largest sum of scores. Immutable; safe from any thread.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "mtrain/tokenize/byte_trie.h"
#include "mtrain/tokenize/token_table.h"
#include "mtrain/tokenize/word_model.h"

namespace mtrain::tokenize {

struct UnigramOptions {
  std::vector<double> scores;      // log probabilities by id
  std::vector<uint8_t> never;      // by id: tokens that are never produced; may be empty
  std::optional<int32_t> unknown;  // if absent, a text that needs it is Error(data)
  double unknown_score = 0;        // the score of one unknown character
  bool byte_fallback = false;      // unknown characters become the tokens <0x00> to <0xFF>
  bool fuse_unknown = true;        // adjacent unknown characters are one token
  bool single_precision = false;   // sum in float like SentencePiece, which decides ties
};

class MT_API Unigram final : public WordModel {
 public:
  /// `tokens` must outlive this object. Error(data) that names `where` when byte tokens are missing
  /// that the options require.
  Unigram(const TokenTable& tokens, UnigramOptions options, const std::string& where);
  void encode(std::string_view word, WordTokens& out) const override;

 private:
  struct Best {
    double score = 0;
    uint32_t begin = UINT32_MAX;  // the beginning of the token that ends here; UINT32_MAX: none yet
    int32_t id = -1;              // -1: one unknown character
  };
  struct PathToken {
    uint32_t begin, end;
    int32_t id;
  };

  void build();
  template <class Score>
  void extend(std::string_view word, size_t at, std::vector<Best>& best, size_t base) const;
  void trace(const std::vector<Best>& best, size_t base, size_t end, size_t until,
             std::vector<PathToken>& out) const;
  void emit(std::string_view word, const std::vector<PathToken>& path, WordTokens& out) const;
  size_t settled(const std::vector<Best>& best, size_t base, size_t at) const;

  const TokenTable& tokens_;
  UnigramOptions options_;
  ByteTrie trie_;                  // to ids
  std::vector<int32_t> byte_ids_;  // ids of <0x00> to <0xFF>
  size_t longest_ = 1;             // bytes of the longest token
};

}  // namespace mtrain::tokenize
