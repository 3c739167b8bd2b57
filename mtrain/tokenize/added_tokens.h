// AddedTokens: texts that a tokenizer takes for one token before it looks at anything else: special
// tokens and what was added to the vocabulary later. Filled once; then safe from any thread.
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
  bool special = false;                          // stands for no text; skipped by decoding
  bool single_word = false;                      // only between other than word characters
  bool strip_left = false, strip_right = false;  // takes the blanks there
  bool normalized = false;                       // looked for after normalization
};

/// A part of a text: what a token was found in (`id` >= 0), or what lies between.
struct TokenPart {
  TextSpan span;
  int32_t id = -1;
};

class MT_API AddedTokens {
 public:
  void add(AddedToken token) { tokens_.push_back(std::move(token)); }
  /// Must be called after the last add(): find() needs it.
  void sort();
  /// Must be called once after that. `normalize` makes the text that normalized tokens are looked
  /// for in.
  void finish(const std::function<std::string(const std::string&)>& normalize);

  const std::vector<AddedToken>& all() const { return tokens_; }
  const AddedToken* find(int32_t id) const;
  /// Whether cut() may find anything.
  bool any(bool normalized, bool with_special) const;
  /// Cuts a text at its tokens, the longest of those that begin leftmost; special ones only
  /// `with_special`.
  std::vector<TokenPart> cut(std::string_view text, bool normalized, bool with_special) const;

 private:
  struct Entry {
    std::string text;
    size_t token;
  };
  bool fits(std::string_view text, const AddedToken& token, TextSpan& span, uint32_t done) const;
  std::vector<AddedToken> tokens_;
  // For tokens looked for before and after normalization: by first byte, the longest first.
  std::array<std::array<std::vector<Entry>, 256>, 2> by_byte_;
};

}  // namespace mtrain::tokenize
