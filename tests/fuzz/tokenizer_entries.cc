// The readers of tokenizers' files: they end with a tokenizer that takes any text, or with one
// located fault.

#include "model_file.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/tokenize/unigram.h"
#include "spm_normalizer.h"
#include "tests/fuzz/entries.h"
#include "tests/fuzz/want.h"
#include "tokenizer_json.h"

namespace mtrain::fuzz {
namespace {

constexpr std::string_view kTexts[] = {"",
                                       "a",
                                       "ab ab",
                                       "_ab<s> a\u0301 \u4e2d\xFF\xC3 12",
                                       "usr  \n abba",
                                       "\u4e2d\u4e2e\u4e2d\u4e2d \u4e2e\u4e2d\xE4\xB8\xB8\xAD\xE4"};

/// A fault of the data, with words.
template <class Work>
void refuses_or_accepts(Work work) {
  try {
    work();
  } catch (const Error& fault) {
    want(fault.error_class() == ErrorClass::data, "a fault is the data's");
    want(!fault.message().empty(), "a fault has words");
  }
}

void use(const Tokenizer& tokenizer) {
  for (auto text : kTexts)
    refuses_or_accepts([&] {
      std::vector<int32_t> ids, again;
      std::vector<TextSpan> spans;
      tokenizer.encode_with(text, {.parse_special = true, .add_special = true}, ids, &spans);
      want(ids.size() == spans.size(), "a span for each id");
      for (const auto& span : spans)
        want(span.begin <= span.end && span.end <= text.size(), "spans are inside");
      for (int32_t id : ids) want(id >= 0 && id < tokenizer.vocab_size(), "ids are inside");
      want(valid_utf8(tokenizer.decode(ids)), "decoded text is UTF-8");
      ids.clear();
      spans.clear();
      tokenizer.encode_with(text, {}, ids, &spans);
      tokenizer.encode_to(text, again);
      want(ids == again, "spans change no ids");
    });
}

}  // namespace

void tokenizer_json(std::string_view text) {
  refuses_or_accepts([&] {
    const simdjson::padded_string padded(text);
    use(tokenize::TextPipeline(hf::read_tokenizer_json(padded, "tokenizer.json")));
  });
}

void sentencepiece_model(std::string_view bytes) {
  refuses_or_accepts([&] {
    const auto file = sentencepiece::read_model_file(bytes, "tokenizer.model");
    const sentencepiece::SpmNormalizer normalizer(file, "tokenizer.model");
    for (auto text : kTexts) {
      tokenize::AlignedText plain, aligned;
      plain.start(text, 0, false, true);
      aligned.start(text, 0, true, true);
      normalizer.apply(plain);
      normalizer.apply(aligned);
      want(plain.text == aligned.text, "origins change no text");
      want(aligned.origin.size() == aligned.text.size(), "an origin for each byte");
    }
  });
}

}  // namespace mtrain::fuzz
