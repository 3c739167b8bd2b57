// Byte pair encoding (Sennrich et al. 2016, arXiv:1508.07909): starts from a word's bytes or
// characters and repeatedly merges the adjacent pair with the lowest rank, the leftmost first.
// Exact for words of any length, with little memory. Immutable; safe from any thread.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/tokenize/greedy_bpe.h"
#include "mtrain/tokenize/token_table.h"
#include "mtrain/tokenize/word_model.h"

namespace mtrain::tokenize {

struct BpeMerge {
  int32_t left = 0, right = 0, result = 0;
  uint32_t rank = 0;  // the lowest rank is merged first; equal ranks from left to right
};

struct BpeOptions {
  bool by_bytes = false;       // start from bytes instead of characters
  bool whole_words = false;    // a word that is a token becomes that token without merges
  bool byte_fallback = false;  // a character without a token becomes the tokens <0x00> to <0xFF>
  bool fuse_unknown = false;   // adjacent unknown characters become one token
  std::optional<int32_t> unknown;  // of other characters without a token; none: omits them
  std::string inner_prefix;        // prefix of a token inside a word: "##"
  std::string end_suffix;          // suffix of a token at the end of a word: "</w>"
};

class MT_API Bpe final : public WordModel {
 public:
  /// `tokens` must outlive this object. Error(data) that names `where` when initial symbols are
  /// missing that the options require.
  Bpe(const TokenTable& tokens, std::vector<BpeMerge> merges, BpeOptions options,
      const std::string& where);
  ~Bpe() override;
  void encode(std::string_view word, WordTokens& out) const override;

  /// True when these two tokens, next to each other, are not changed by merges. A sequence of
  /// tokens is the encoding of its text exactly when this holds for all adjacent pairs: merges
  /// inside a token do not depend on its neighbours, and the first merge across a boundary involves
  /// only the two tokens next to it.
  bool stay_apart(int32_t left, int32_t right) const;
  /// True when the merges produce this token from its own text.
  bool makes(int32_t id) const;

 private:
  struct Symbol {
    int32_t id;
    uint32_t bytes;
  };
  struct Pair {
    uint64_t key = ~uint64_t{0};  // left id, right id
    uint32_t rank = 0;
    int32_t result = 0;
  };
  struct Found {
    uint32_t rank = UINT32_MAX;  // none
    int32_t result = 0;
  };
  using Symbols = std::vector<Symbol>;

  Found find(int32_t left, int32_t right) const;
  void start_symbols(std::string_view word, bool begins, bool ends, Symbols& out) const;
  void start_char(std::string_view c, bool begins, bool ends, Symbols& out,
                  std::optional<uint32_t>& unknown) const;
  void merge(Symbols& symbols) const;
  size_t merge_few(Symbol* symbols, size_t n, const char* bytes) const;
  void merge_many(Symbols& symbols) const;
  void encode_long(std::string_view word, WordTokens& out) const;
  void merge_text(std::string_view text, Symbols& symbols) const;
  bool stay_apart(std::string_view left, int32_t left_id, std::string_view right,
                  int32_t right_id) const;
  void learn_never_made();
  bool may_be_never_made(std::string_view word) const;

  const TokenTable& tokens_;
  BpeOptions options_;
  std::array<int32_t, 256> byte_ids_{};  // ids of single bytes, or of the fallback tokens; -1: none
  std::array<int32_t, 128> ascii_ids_{};  // ids of characters; -1: none
  std::vector<Pair> pairs_;               // open addressing; a power of two
  std::vector<Found> byte_pairs_;         // by_bytes: the pairs of single bytes, 256 * left + right
  uint32_t shift_ = 0;
  std::unique_ptr<const GreedyBpe> greedy_;  // by_bytes, where the merges allow it
  /// whole_words: a hash filter of tokens that greedy_ accepts and that only this option produces.
  std::array<uint64_t, 64> never_made_{};
};

/// The merges that a SentencePiece model implies: every way to join two tokens to a token, ranked
/// by the score of the result. `ranks` by id, the lowest merged first; tokens with UINT32_MAX are
/// never produced.
MT_API std::vector<BpeMerge> implied_merges(const TokenTable& tokens,
                                            const std::vector<uint32_t>& ranks);

/// True when `mark` only occurs at the beginning of the tokens that these merges produce, so that
/// words may be split before its runs.
MT_API bool begins_words(const TokenTable& tokens, const std::vector<BpeMerge>& merges,
                         std::string_view mark);

}  // namespace mtrain::tokenize
