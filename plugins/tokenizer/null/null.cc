// The null tokenizer: the text consists of ids, in decimal, separated by blanks. For numeric data,
// and for speed tests.
#include <charconv>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct NullConfig {
  int64_t vocab_size = 0;
  void bind(Fields& f) {
    f("vocab_size", vocab_size, "token ids are below this; this value is the end-of-document token")
        .required()
        .min(1)
        .max(double{INT32_MAX} - 1)
        .example("32000")
        .resume(ResumeClass::impossible);
  }
};

class NullTokenizer final : public Tokenizer {
 public:
  NullTokenizer(const NullConfig& config, TokenizerContext&) : ids_(config.vocab_size) {}

  std::string name() const override { return "null"; }
  int64_t vocab_size() const override { return ids_ + 1; }
  std::optional<int32_t> eod() const override { return static_cast<int32_t>(ids_); }
  std::string identity() const override {
    return cat("null: ", ids_, " ids, end of document ", ids_);
  }
  std::string text_identity() const override { return ""; }  // the ids come from another tokenizer

  void encode_to(std::string_view text, std::vector<int32_t>& ids) const override {
    read(text, ids, nullptr);
  }

  void encode_with(std::string_view text, const EncodeOptions&, std::vector<int32_t>& ids,
                   std::vector<TextSpan>* spans) const override {
    read(text, ids, spans);
  }

  std::string decode_bytes(std::span<const int32_t> ids) const override {
    std::string out;
    for (int32_t id : ids) {
      MT_USER_CHECK(id >= 0 && id <= ids_, ErrorClass::data,
                    cat("id ", id, " is outside the null tokenizer's vocabulary of ", ids_ + 1),
                    "");
      if (id < ids_) out.append(out.empty() ? "" : " ").append(std::to_string(id));
    }
    return out;
  }

 private:
  void read(std::string_view text, std::vector<int32_t>& ids, std::vector<TextSpan>* spans) const {
    const char *at = text.data(), *end = text.data() + text.size();
    for (;;) {
      while (at < end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) ++at;
      if (at == end) return;
      int32_t id = 0;
      auto [stop, fault] = std::from_chars(at, end, id);
      const auto place = static_cast<size_t>(at - text.data());
      MT_USER_CHECK(fault == std::errc() && id >= 0 && id < ids_, ErrorClass::data,
                    cat("at byte ", place, " the null tokenizer requires an id below ", ids_,
                        ", not '", printable(text.substr(place, 20)), "'"),
                    "its text must be decimal ids separated by spaces");
      ids.push_back(id);
      if (spans)
        spans->push_back({static_cast<uint32_t>(place), static_cast<uint32_t>(stop - text.data())});
      at = stop;
    }
  }

  int64_t ids_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("null", "text that already consists of token ids") {
  using namespace mtrain;
  registry.add<Tokenizer, NullTokenizer, NullConfig>("null",
                                                     "text that already consists of token ids");
}
