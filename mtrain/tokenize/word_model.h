// WordModel: how one word becomes tokens. Immutable; safe from any thread.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain::tokenize {

/// Tokens with how many bytes of the word each stands for.
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
  /// Appends the tokens of a word to `out`. Takes time and memory in proportion to the word,
  /// whatever it is.
  virtual void encode(std::string_view word, WordTokens& out) const = 0;
};

}  // namespace mtrain::tokenize
