// SentenceSplitter: splits text into sentences by Unicode's rules (UAX #29). Not synchronised: one
// thread at a time.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

class MT_API SentenceSplitter {
 public:
  SentenceSplitter();
  ~SentenceSplitter();
  SentenceSplitter(const SentenceSplitter&) = delete;
  SentenceSplitter& operator=(const SentenceSplitter&) = delete;
  /// Appends the sentences of `text` (valid UTF-8, less than 2 GiB) without surrounding white
  /// space; none for a text of only white space. They refer to `text`.
  void split(std::string_view text, std::vector<std::string_view>& out);

 private:
  struct Iterator;
  std::unique_ptr<Iterator> iterator_;
};

}  // namespace mtrain
