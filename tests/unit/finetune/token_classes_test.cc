#include "mtrain/finetune/token_classes.h"

#include <doctest/doctest.h>

#include "../data/data_files.h"
#include "byte_tokenizer.h"
#include "mtrain/base/error.h"

using namespace mtrain;
using namespace mtrain::finetune;
using namespace mtrain::testing;

namespace {

using Ids = std::vector<int32_t>;
constexpr int32_t kNone = kIgnoredTarget;

/// Encodes two letters as one token, 1000 + the first one, wherever both are there; "_" as part of
/// the token after it, like a space of byte-level BPE; and adds 256 before and 257 after the text.
class PairTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "pairs"; }
  int64_t vocab_size() const override { return 2000; }
  std::optional<int32_t> eod() const override { return 257; }
  std::optional<int32_t> bos() const override { return 256; }
  std::vector<SpecialToken> special_tokens() const override {
    return {{"<s>", 256}, {"</s>", 257}};
  }
  void encode_to(std::string_view text, std::vector<int32_t>& ids) const override {
    encode_with(text, {}, ids, nullptr);
  }
  void encode_with(std::string_view text, const EncodeOptions& options, std::vector<int32_t>& ids,
                   std::vector<TextSpan>* spans) const override {
    const auto add = [&](int32_t id, size_t begin, size_t end) {
      ids.push_back(id);
      if (spans) spans->push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    };
    if (options.add_special) add(256, 0, 0);
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      while (at < text.size() && text[at] == '_') ++at;
      const size_t letters = std::min<size_t>(2, text.size() - at);
      add(1000 + (letters > 0 ? text[at] : 0), begin, at + letters);
      at += letters;
    }
    if (options.add_special) add(257, text.size(), text.size());
  }
  std::string decode_bytes(std::span<const int32_t>) const override { return {}; }
  std::string identity() const override { return "pairs"; }
};

LabeledFile load(const fs::path& file, const LabeledSettings& settings, int64_t length = 8) {
  return load_labeled_file(file, settings, PairTokenizer(), length, 3);
}

}  // namespace

TEST_CASE("a word's class is that of its first token, or of all of them") {
  const PairTokenizer tokenizer;
  int64_t lost = 0;
  // <s> ab c | _de f | _g </s>, where each pair is a token
  const std::vector<std::string> words = {"abcd", "efgh", "i"};
  LabeledText first = encode_words(words, {1, 2, 0}, "_", {}, tokenizer, lost);
  const Ids further = {0, 2, 2};  // like O, B and I
  CHECK(first.ids == Ids{256, 1097, 1099, 1101, 1103, 1105, 257});
  CHECK(first.classes == Ids{kNone, 1, kNone, 2, kNone, 0, kNone});
  CHECK(encode_words(words, {1, 2, 0}, "_", further, tokenizer, lost).classes ==
        Ids{kNone, 1, 2, 2, 2, 0, kNone});
  CHECK(encode_words(words, {1, kNone, 0}, "_", further, tokenizer, lost).classes ==
        Ids{kNone, 1, 2, kNone, kNone, 0, kNone});
  CHECK(lost == 0);
  // An empty word has no token.
  CHECK(encode_words({"ab", "", "c"}, {1, 2, 0}, "", {}, tokenizer, lost).classes ==
        Ids{kNone, 1, 0, kNone});
  CHECK(lost == 1);
  // The tokens are "ab", of two words, and "cd", which is the first one for "bc" alone.
  const LabeledText shared = encode_words({"a", "bc", "d"}, {1, 2, 0}, "", {}, tokenizer, lost);
  CHECK(shared.classes == Ids{kNone, 1, 2, kNone});
  CHECK(lost == 2);
}

TEST_CASE("a file of words: classes by name and number, truncation that keeps the last token") {
  ScratchFolder scratch;
  put(scratch / "w.jsonl",
      "{\"tokens\": [\"abcd\", \"ef\"], \"tags\": [\"X\", 2]}\n"
      "{\"tokens\": [\"ab\", \"cd\", \"ef\", \"gh\", \"ij\"], \"tags\": [0, null, -100, 1, 2]}\n"
      "{\"tokens\": [\"ab\"], \"tags\": [null]}\n");
  LabeledSettings settings;
  settings.labels = {"O", "X", "Y"};
  settings.separator = "_";
  const LabeledFile file = load(scratch / "w.jsonl", settings, 6);
  REQUIRE(file.size() == 2);
  CHECK((*file.texts)[0].classes == Ids{kNone, 1, kNone, 2, kNone});
  CHECK((*file.texts)[1].ids == Ids{256, 1097, 1099, 1101, 1103, 257});
  CHECK((*file.texts)[1].classes == Ids{kNone, 0, kNone, kNone, 1, kNone});
  CHECK(file.of_class == std::vector<int64_t>{1, 2, 1});
  CHECK(file.words == 5);
  CHECK(file.unlabeled == 1);
  CHECK(file.summary(settings, 6)
            .ends_with("2 of 3 records, 5 words with a class; tokens of class O 1, X 2, Y 1; 1 "
                       "truncated to 6 "
                       "tokens, without 1 of the tokens that have a class; 1 left out because no "
                       "token has a class"));
  settings.too_long = "drop";
  CHECK(load(scratch / "w.jsonl", settings, 6).size() == 1);
  settings.too_long = "fail";
  CHECK_THROWS_AS(load(scratch / "w.jsonl", settings, 6), Error);
}

TEST_CASE("samples of words: a target is the class at its own position") {
  auto texts = std::make_shared<std::vector<LabeledText>>();
  texts->push_back({.ids = {5, 6, 7}, .classes = {1, kNone, 2}});
  texts->push_back({.ids = {8, 9}, .classes = {kNone, 0}});
  const LabeledSource source(texts, {.items = {0, 1}, .begin = {0, 2}}, SampleOrder(), 3);
  CHECK(source.size() == 1);
  Ids tokens(7), targets(7), positions(7);
  Sample sample{.tokens = tokens, .targets = targets, .positions = positions};
  source.get(0, sample);
  CHECK(tokens == Ids{5, 6, 7, 8, 9, 3, 3});
  CHECK(targets == Ids{1, kNone, 2, kNone, 0, kNone, kNone});
  CHECK(positions == Ids{0, 1, 2, 0, 1, 0, 1});
  CHECK(sample.starts == Ids{0, 3, 5});
  CHECK(sample.padding == 2);
}
