// The byte tokenizer: ids 0 to 255 are the bytes themselves, 256 ends a document. Needs no files and loses
// nothing.
#include "mtrain/base/error.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

constexpr int32_t kEndOfDocument = 256;

struct ByteConfig {
  void bind(Fields&) {}
};

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer(const ByteConfig&, TokenizerContext&) {}

  std::string name() const override { return "byte"; }
  int64_t vocab_size() const override { return kEndOfDocument + 1; }
  std::optional<int32_t> eod() const override { return kEndOfDocument; }
  std::vector<SpecialToken> special_tokens() const override { return {{"<|endoftext|>", kEndOfDocument}}; }
  std::string identity() const override { return "byte: 256 bytes, end of document 256"; }

  void encode_to(std::string_view text, std::vector<int32_t>& ids) const override {
    size_t at = ids.size();
    ids.resize(at + text.size());
    for (char c : text) ids[at++] = static_cast<unsigned char>(c);
  }

  std::string decode_bytes(std::span<const int32_t> ids) const override {
    std::string out;
    out.reserve(ids.size());
    for (int32_t id : ids) {
      MT_USER_CHECK(id >= 0 && id <= kEndOfDocument, ErrorClass::data,
                    cat("id ", id, " is outside the byte tokenizer's vocabulary of 257"), "");
      if (id != kEndOfDocument) out += static_cast<char>(id);
    }
    return out;
  }
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("byte", "bytes as tokens: 256 of them and an end of document") {
  using namespace mtrain;
  registry.add<Tokenizer, ByteTokenizer, ByteConfig>("byte",
                                                     "bytes as tokens: 256 of them and an end of document");
}
