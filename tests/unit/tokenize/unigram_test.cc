// The unigram model against every way to split a word; and normalization against ICU's own.
#include "mtrain/tokenize/unigram.h"

#include <doctest/doctest.h>

#include <random>

#include "mtrain/base/error.h"
#include "mtrain/tokenize/charsmap.h"
#include "mtrain/tokenize/normalizer.h"
#include "mtrain/tokenize/unicode.h"

using namespace mtrain;
using namespace mtrain::tokenize;

namespace {

constexpr double kUnknownScore = -20;

double best_score(const TokenTable& tokens, const std::vector<double>& scores,
                  const std::string& word, size_t at) {
  if (at == word.size()) return 0;
  double best = kUnknownScore + best_score(tokens, scores, word, at + 1);
  for (size_t end = at + 1; end <= word.size(); ++end)
    if (int32_t id = tokens.find(word.substr(at, end - at)); id > 0)
      best =
          std::max(best, scores[static_cast<size_t>(id)] + best_score(tokens, scores, word, end));
  return best;
}

}  // namespace

TEST_CASE("the best way to split a word") {
  std::mt19937 random(5);
  TokenTable tokens;
  UnigramOptions options;
  auto add = [&](const std::string& text) {
    if (tokens.find(text) >= 0) return;
    tokens.add(text, tokens.size(), "test");
    options.scores.push_back(-1.0 - static_cast<double>(random() % 1000) / 100);
  };
  add("<unk>");
  for (int i = 0; i < 60; ++i) {
    std::string text;
    for (size_t n = 1 + random() % 4; n > 0; --n) text += static_cast<char>('a' + random() % 3);
    add(text);
  }
  options.unknown = 0;
  options.unknown_score = kUnknownScore;
  options.fuse_unknown = false;
  Unigram unigram(tokens, options, "test");
  for (int i = 0; i < 500; ++i) {
    std::string word;
    for (size_t n = random() % 11; n > 0; --n)
      word += static_cast<char>('a' + random() % 4);  // d is unknown
    WordTokens out;
    unigram.encode(word, out);
    double sum = 0;
    std::string back;
    size_t at = 0;
    for (size_t k = 0; k < out.ids.size(); ++k) {
      sum += out.ids[k] == 0 ? kUnknownScore : options.scores[static_cast<size_t>(out.ids[k])];
      if (out.ids[k] != 0) CHECK(tokens.text(out.ids[k]) == word.substr(at, out.bytes[k]));
      at += out.bytes[k];
    }
    CHECK(at == word.size());
    CHECK(sum == doctest::Approx(best_score(tokens, options.scores, word, 0)));
  }
  // What is settled early is the same as what is settled at the end.
  std::string period = "abcabbacab", longer;
  while (longer.size() < (size_t{3} << 20)) longer += period;
  WordTokens whole;
  unigram.encode(longer, whole);
  size_t bytes = 0;
  for (auto size : whole.bytes) bytes += size;
  CHECK(bytes == longer.size());
}

TEST_CASE("normal forms with and without origins are the same text") {
  std::mt19937 random(6);
  const std::u32string pool =
      U"aeiouç "
      U"éÅ\u0301\u0308\u0323\u0327\u0344\u1100\u1161\u11A8각힣ﬁ²①㎏ſḍ̇\u0F73\u0958中Ａ\u212B\u1E9B";
  for (auto form : {UnicodeForm::nfc, UnicodeForm::nfd, UnicodeForm::nfkc, UnicodeForm::nfkd}) {
    auto normalizer = normalize_unicode(form);
    for (int i = 0; i < 3000; ++i) {
      std::string text;
      for (size_t n = random() % 12; n > 0; --n) append_utf8(text, pool[random() % pool.size()]);
      AlignedText plain, aligned;
      plain.start(text, 0, false, true);
      aligned.start(text, 0, true, true);
      normalizer->apply(plain);
      normalizer->apply(aligned);
      INFO(text);
      REQUIRE(plain.text == aligned.text);
      REQUIRE(aligned.origin.size() == aligned.text.size());
      for (const auto& span : aligned.origin) REQUIRE(span.end <= text.size());
      CHECK(normalizer->keeps(plain.text));
    }
  }
}

TEST_CASE("broken UTF-8 is repaired with its place kept") {
  AlignedText text;
  text.start("a\xFF\xC3", 10, true, true);
  CHECK(text.text == "a\xEF\xBF\xBD\xEF\xBF\xBD");
  CHECK(text.span(1, 4) == TextSpan{11, 12});
  CHECK(text.span(4, 7) == TextSpan{12, 13});
}

TEST_CASE("damaged base64 and charsmaps are refused") {
  CHECK(decode_base64("aGVsbG8=", "f") == "hello");
  CHECK(decode_base64("AA==", "f") == std::string(1, '\0'));
  CHECK_THROWS_WITH_AS(decode_base64("a*b", "f.json: x"), doctest::Contains("f.json: x"), Error);
  CHECK_THROWS_AS(Charsmap("", "f"), Error);
  CHECK_THROWS_AS(Charsmap(std::string("\x08\0\0\0ab", 6), "f"), Error);
  CHECK_THROWS_AS(Charsmap(std::string("\0\0\0\0ab", 6), "f"), Error);
  CHECK_FALSE(Charsmap(std::string("\0\0\0\0", 4), "f").longest("abc").has_value());
}

TEST_CASE("grapheme clusters") {
  auto ends = [](const std::string& text) {
    std::vector<size_t> out;
    for (size_t at = 0; at < text.size(); out.push_back(at)) at = grapheme_end(text, at);
    return out;
  };
  CHECK(ends("ab") == std::vector<size_t>{1, 2});
  CHECK(ends("\r\n\n") == std::vector<size_t>{2, 3});
  CHECK(ends("e\u0301x") == std::vector<size_t>{3, 4});
  CHECK(ends("👨‍👩‍👧!").size() == 2);
  CHECK(ends("🇩🇪🇫🇷").size() == 2);
  CHECK(ends("\u1100\u1161\u11A8") == std::vector<size_t>{9});
}
