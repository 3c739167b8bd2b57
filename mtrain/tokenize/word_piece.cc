#include "mtrain/tokenize/word_piece.h"

#include <algorithm>

#include "mtrain/tokenize/unicode.h"

namespace mtrain::tokenize {

void WordPiece::encode(std::string_view word, WordTokens& out) const {
  const size_t first = out.ids.size();
  auto unknown = [&] {
    out.ids.resize(first);
    out.bytes.resize(first);
    out.add(options_.unknown, word.size());
  };
  if (count_chars(word) > static_cast<size_t>(options_.max_chars)) return unknown();
  std::string inner;
  for (size_t begin = 0; begin < word.size();) {
    const size_t prefix = begin == 0 ? 0 : options_.inner_prefix.size();
    if (prefix > 0) inner.assign(options_.inner_prefix).append(word.substr(begin));
    const std::string_view rest = prefix > 0 ? std::string_view(inner) : word.substr(begin);
    size_t size = std::min(rest.size(), tokens_.longest());
    while (size < rest.size() && is_tail_byte(rest[size])) --size;
    int32_t id = -1;
    for (; size > prefix; --size) {
      if (size < rest.size() && is_tail_byte(rest[size])) continue;
      if ((id = tokens_.find(rest.substr(0, size))) >= 0) break;
    }
    if (id < 0) return unknown();
    out.add(id, size - prefix);
    begin += size - prefix;
  }
}

}  // namespace mtrain::tokenize
