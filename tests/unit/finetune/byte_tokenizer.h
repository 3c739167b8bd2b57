// A tokenizer for tests: bytes, and special tokens from 256 on, which it never adds by itself.
#pragma once
#include "mtrain/data/tokenizer.h"

namespace mtrain::testing {

class ByteTokenizer final : public Tokenizer {
 public:
  /// <s> 256 begins texts, </s> 257 ends documents.
  ByteTokenizer() = default;
  /// These are special, and none of them begins or ends anything.
  explicit ByteTokenizer(std::vector<std::string> special)
      : special_(std::move(special)), bos_(), eod_() {}
  std::string name() const override { return "bytes"; }
  int64_t vocab_size() const override { return 256 + std::ssize(special_); }
  std::optional<int32_t> eod() const override { return eod_; }
  std::optional<int32_t> bos() const override { return bos_; }
  std::vector<SpecialToken> special_tokens() const override {
    std::vector<SpecialToken> out;
    for (const auto& text : special_) out.push_back({text, 256 + static_cast<int32_t>(out.size())});
    return out;
  }
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

 private:
  std::vector<std::string> special_ = {"<s>", "</s>"};
  std::optional<int32_t> bos_ = 256, eod_ = 257;
};

/// Trained tokens as text, the others as one "." each; special tokens as < and >.
template <class Ids, class Trained>
std::string trained_text(const Ids& ids, const Trained& trained) {
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i)
    out += !trained[i]     ? '.'
           : ids[i] == 256 ? '<'
           : ids[i] == 257 ? '>'
                           : static_cast<char>(ids[i]);
  return out;
}

}  // namespace mtrain::testing
