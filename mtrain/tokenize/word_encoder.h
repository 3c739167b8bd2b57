// WordEncoder: a word model with word caches. Owns both. Const members are safe from any thread:
// each call takes a cache from a pool and returns it.
#pragma once
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "mtrain/data/tokenizer.h"
#include "mtrain/tokenize/word_cache.h"
#include "mtrain/tokenize/word_model.h"
#include "mtrain/tokenize/word_scanner.h"

namespace mtrain::tokenize {

class MT_API WordEncoder {
 public:
  explicit WordEncoder(std::unique_ptr<const WordModel> model) : model_(std::move(model)) {}

  /// Appends the tokens of words `[begin, end)` of `text`, one after the other.
  void encode(std::string_view text, std::span<const TextSpan> words,
              std::vector<int32_t>& ids) const;
  /// The same for the words of a known pattern.
  void encode(std::string_view text, KnownPattern pattern, std::vector<int32_t>& ids) const;
  /// Also returns the size of each token in its word; does not use the cache.
  void encode_word(std::string_view word, WordTokens& out) const { model_->encode(word, out); }

 private:
  class Writer;
  struct Scratch {
    WordCache cache;
    WordTokens tokens;
    std::vector<int32_t> out;
  };
  class Lease;
  std::unique_ptr<const WordModel> model_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> free_;  // guarded by mutex_
};

}  // namespace mtrain::tokenize
