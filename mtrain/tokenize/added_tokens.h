// AddedTokens: texts that a tokenizer matches as one token before any other step: special tokens
// and later additions to the vocabulary. Built once; afterwards const members are safe from any
// thread.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/data/tokenizer.h"

namespace mtrain::tokenize {

struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool special = false;                          // represents no text; skipped by decoding
  bool single_word = false;                      // matches only between non-word characters
  bool strip_left = false, strip_right = false;  // includes adjacent white space
  bool normalized = false;                       // matched after normalization
};

/// A part of a text: a match of a token (`id` >= 0), or the text between matches.
struct TokenPart {
  TextSpan span;
  int32_t id = -1;
};

class MT_API AddedTokens {
 public:
  void add(AddedToken token) { tokens_.push_back(std::move(token)); }
  /// Call after the last add() and before find().
  void sort();
  /// Sorts too. Call once, after the last add(). `normalize` normalizes the text of tokens that are
  /// matched after normalization.
  void finish(const std::function<std::string(const std::string&)>& normalize);

  const std::vector<AddedToken>& all() const { return tokens_; }
  const AddedToken* find(int32_t id) const;
  /// True when split() may find a match.
  bool any(bool normalized, bool with_special) const;
  /// Splits a text at its tokens: the leftmost match, and of several the longest. Matches special
  /// tokens only when `with_special` is set.
  std::vector<TokenPart> split(std::string_view text, bool normalized, bool with_special) const;

 private:
  struct Entry {
    std::string text;
    size_t token;
  };
  bool fits(std::string_view text, const AddedToken& token, TextSpan& span, uint32_t done) const;
  std::vector<AddedToken> tokens_;
  // Tokens matched before and after normalization: by first byte, the longest first.
  std::array<std::array<std::vector<Entry>, 256>, 2> by_byte_;
};

}  // namespace mtrain::tokenize
