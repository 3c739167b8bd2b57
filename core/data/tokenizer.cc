#include "mtrain/data/tokenizer.h"

#include "mtrain/base/text.h"

namespace mtrain {

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  return repair_utf8(decode_bytes(ids));
}

std::string repair_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  size_t bad = 0;
  while (!valid_utf8(bytes, &bad)) {
    out.append(bytes.substr(0, bad)).append("\xEF\xBF\xBD");
    bytes.remove_prefix(bad + 1);
  }
  return out.append(bytes);
}

}  // namespace mtrain
