// WordModel: encodes one word to tokens. Immutable; safe from any thread.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain::tokenize {

/// Tokens, each with the number of bytes of the word that it represents.
struct WordTokens {
  std::vector<int32_t> ids;
  std::vector<uint32_t> bytes;
  void add(int32_t id, size_t size) {
    ids.push_back(id);
    bytes.push_back(static_cast<uint32_t>(size));
  }
  void clear() {
    ids.clear();
    bytes.clear();
  }
};

class MT_API WordModel {
 public:
  virtual ~WordModel() = default;
  /// Appends the tokens of a word to `out`. Time and memory are proportional to the length of the
  /// word, for any word.
  virtual void encode(std::string_view word, WordTokens& out) const = 0;
};

}  // namespace mtrain::tokenize
