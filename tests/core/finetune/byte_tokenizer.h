// A tokenizer for tests: bytes, <s> 256, </s> 257, which the tokenizer puts nowhere by itself.
#pragma once
#include "mtrain/data/tokenizer.h"

namespace mtrain::testing {

class ByteTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "bytes"; }
  int64_t vocab_size() const override { return 258; }
  std::optional<int32_t> eod() const override { return 257; }
  std::optional<int32_t> bos() const override { return 256; }
  std::vector<SpecialToken> special_tokens() const override { return {{"<s>", 256}, {"</s>", 257}}; }
  void encode_to(std::string_view text, std::vector<int32_t>& ids) const override {
    for (char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  std::string decode_bytes(std::span<const int32_t> ids) const override {
    std::string out;
    for (int32_t id : ids)
      if (id < 256) out += static_cast<char>(id);
    return out;
  }
  std::string identity() const override { return "bytes"; }
};

/// Learnt tokens as text, the others as one "." each; special tokens as < and >.
template <class Ids, class Trained>
std::string learnt_text(const Ids& ids, const Trained& trained) {
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i)
    out += !trained[i] ? '.' : ids[i] == 256 ? '<' : ids[i] == 257 ? '>' : static_cast<char>(ids[i]);
  return out;
}

}  // namespace mtrain::testing
