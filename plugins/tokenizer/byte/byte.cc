// The byte tokenizer: ids 0 to 255 are the bytes themselves, 256 ends a document, and any requested
// special tokens follow. Needs no files and is lossless.
#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

constexpr int32_t kEndOfDocument = 256;

struct ByteConfig {
  int64_t extra_ids = 0;
  void bind(Fields& f) {
    f("extra_ids", extra_ids,
      "number of special tokens <extra_id_0>, <extra_id_1>, … after the end-of-document token; "
      "<extra_id_0> has the largest id")
        .min(0)
        .max(10000)
        .example("100")
        .resume(ResumeClass::impossible)
        .renamed_from({"vocab_extra_ids"});
  }
};

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer(const ByteConfig& config, TokenizerContext&)
      : extra_ids_(static_cast<int32_t>(config.extra_ids)) {}

  std::string name() const override { return "byte"; }
  int64_t vocab_size() const override { return kEndOfDocument + 1 + extra_ids_; }
  std::optional<int32_t> eod() const override { return kEndOfDocument; }
  std::vector<SpecialToken> special_tokens() const override {
    std::vector<SpecialToken> out = {{"<|endoftext|>", kEndOfDocument}};
    for (int32_t i = 1; i <= extra_ids_; ++i)
      out.push_back({cat("<extra_id_", extra_ids_ - i, ">"), kEndOfDocument + i});
    return out;
  }
  std::string identity() const override {
    return cat(text_identity(), extra_ids_ > 0 ? cat(", ", extra_ids_, " extra") : "");
  }

  std::string text_identity() const override { return "byte: 256 bytes, end of document 256"; }

  void encode_to(std::string_view text, std::vector<int32_t>& ids) const override {
    size_t at = ids.size();
    ids.resize(at + text.size());
    for (char c : text) ids[at++] = static_cast<unsigned char>(c);
  }

  void encode_with(std::string_view text, const EncodeOptions& options, std::vector<int32_t>& ids,
                   std::vector<TextSpan>* spans) const override {
    const EncodeOptions plain{.add_special = options.add_special};
    if (!options.parse_special) return Tokenizer::encode_with(text, plain, ids, spans);
    const std::vector<SpecialToken> all = special_tokens();
    // Bytes need no context, so the text between special tokens is encoded on its own.
    for (size_t at = 0; at < text.size();) {
      const auto found = std::ranges::find_if(
          all, [&](const SpecialToken& one) { return text.substr(at).starts_with(one.text); });
      if (found == all.end()) {
        append(text, at, at + 1, static_cast<unsigned char>(text[at]), ids, spans);
        ++at;
      } else {
        append(text, at, at + found->text.size(), found->id, ids, spans);
        at += found->text.size();
      }
    }
  }

  std::string decode_bytes(std::span<const int32_t> ids) const override {
    std::string out;
    out.reserve(ids.size());
    for (int32_t id : ids) {
      MT_USER_CHECK(id >= 0 && id < vocab_size(), ErrorClass::data,
                    cat("id ", id, " is outside the byte tokenizer's vocabulary of ", vocab_size()),
                    "");
      if (id < kEndOfDocument) out += static_cast<char>(id);
    }
    return out;
  }

 private:
  /// Appends an id that represents bytes [begin, end) of a text; its span has whole characters.
  static void append(std::string_view text, size_t begin, size_t end, int32_t id,
                     std::vector<int32_t>& ids, std::vector<TextSpan>* spans) {
    ids.push_back(id);
    auto inside = [&](size_t i) {
      return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
    };
    while (begin > 0 && inside(begin)) --begin;
    while (inside(end)) ++end;
    if (spans) spans->push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
  }

  int32_t extra_ids_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("byte", "bytes as tokens: 256 bytes and an end-of-document token") {
  using namespace mtrain;
  registry.add<Tokenizer, ByteTokenizer, ByteConfig>(
      "byte", "bytes as tokens: 256 bytes and an end-of-document token");
}
