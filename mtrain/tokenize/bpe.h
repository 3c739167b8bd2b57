// Byte pair encoding (Sennrich et al. 2016, arXiv:1508.07909): a word's bytes or characters, and
// then, again and again, the pair of neighbours of the lowest rank made one, the leftmost first.
// Exact for words of any length, in little memory of its own. Immutable; safe from any thread.
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
  uint32_t rank = 0;  // the lowest is merged first; equal ranks from left to right
};

struct BpeOptions {
  bool by_bytes = false;       // start from bytes instead of characters
  bool whole_words = false;    // a word that is a token is that token, whatever the merges say
  bool byte_fallback = false;  // a character without a token becomes the tokens <0x00> to <0xFF>
  bool fuse_unknown = false;   // neighbouring unknown characters become one token
  std::optional<int32_t> unknown;
  std::string inner_prefix;  // of a token that does not begin a word: "##"
  std::string end_suffix;    // of a token that ends a word: "</w>"
};

class MT_API Bpe final : public WordModel {
 public:
  /// `tokens` must outlive this. Error(data) naming `where` when starting symbols are missing that
  /// the options need.
  Bpe(const TokenTable& tokens, std::vector<BpeMerge> merges, BpeOptions options,
      const std::string& where);
  ~Bpe() override;
  void encode(std::string_view word, WordTokens& out) const override;

  /// Whether these two tokens, side by side, stay as they are. A row of tokens is the encoding of
  /// its text exactly when all neighbours do: merges inside a token do not depend on what is around
  /// it, and the first merge across a border would be one of the two tokens alone.
  bool stay_apart(int32_t left, int32_t right) const;
  /// Whether merges make this token of its own text.
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
  std::array<int32_t, 256> byte_ids_{};   // of single bytes, or of the fallback tokens; -1: none
  std::array<int32_t, 128> ascii_ids_{};  // of characters; -1: none
  std::vector<Pair> pairs_;               // open addressing; a power of two
  std::vector<Found> byte_pairs_;         // by_bytes: the pairs of single bytes, 256 * left + right
  uint32_t shift_ = 0;
  std::unique_ptr<const GreedyBpe> greedy_;  // by_bytes, where the merges allow it
  /// whole_words: bits of a hash of the tokens that only that option gives, of those that greedy_
  /// takes.
  std::array<uint64_t, 64> never_made_{};
};

/// The merges that SentencePiece's models imply: every way to make a token of two tokens, ranked by
/// the token's score. `ranks` by id, the lowest merged first; tokens with UINT32_MAX are never
/// made.
MT_API std::vector<BpeMerge> implied_merges(const TokenTable& tokens,
                                            const std::vector<uint32_t>& ranks);

/// Whether no token that these merges make has `mark` behind something else, so that words may be
/// cut before its runs.
MT_API bool begins_words(const TokenTable& tokens, const std::vector<BpeMerge>& merges,
                         std::string_view mark);

}  // namespace mtrain::tokenize
