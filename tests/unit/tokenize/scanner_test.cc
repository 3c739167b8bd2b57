// The scanners against the regular expressions that they stand for, by PCRE2.
#include <doctest/doctest.h>

#include <array>
#include <random>

#include "mtrain/base/error.h"
#include "mtrain/tokenize/pre_tokenizer.h"
#include "mtrain/tokenize/unicode.h"

using namespace mtrain;
using namespace mtrain::tokenize;

namespace {

std::vector<std::string> words_by(const PreTokenizer& how, const std::string& text) {
  Words words;
  words.text.start(text, 0, false, false);
  words.ranges = {{0, static_cast<uint32_t>(text.size())}};
  how.apply(words);
  std::vector<std::string> out;
  for (const auto& range : words.ranges)
    out.push_back(words.text.text.substr(range.begin, range.end - range.begin));
  return out;
}

/// Texts in which the rules meet: letters, digits, blanks, line ends, apostrophes, marks, of one to
/// four bytes.
std::string odd_text(std::mt19937& random) {
  static const std::vector<std::string> kPieces = {
      "a",      "B",      "ll",     "re",     "s",      "S",      "t",      "D",  "ſ",    "é",
      "ß",      "中",     "한",     "ไ",      "𝒜",      "1",      "23",     "٣",  "Ⅷ",    "½",
      "'",      "’",      "'s",     "'LL",    " ",      "  ",     "\t",     "\n", "\r\n", "\u00A0",
      "\u2003", "\u0085", "\u3000", "\u180E", "\u200D", "\u01C5", "\u02B0", "/",  ".",    "--",
      "(",      "_",      "\u0301", "😀",      "\u00B4", "$"};
  std::string out;
  const size_t count = random() % 24;
  for (size_t i = 0; i < count; ++i) out += kPieces[random() % kPieces.size()];
  return out;
}

}  // namespace

TEST_CASE("each scanner splits as its regular expression does") {
  std::mt19937 random(7);
  for (auto pattern :
       {KnownPattern::gpt2, KnownPattern::llama3, KnownPattern::qwen2, KnownPattern::o200k}) {
    const std::string text(pattern_text(pattern));
    CHECK(recognize_pattern(text) == pattern);
    auto scanner = split_known(pattern);
    auto regex = split_regex(Regex(text, "test"), SplitBehavior::isolated, false);
    for (int i = 0; i < 20000; ++i) {
      const std::string sample = odd_text(random);
      INFO(text << " on '" << sample << "'");
      REQUIRE(words_by(*scanner, sample) == words_by(*regex, sample));
    }
  }
  CHECK(recognize_pattern("\\w+") == KnownPattern::none);
}

TEST_CASE("scanners take any bytes and lose none") {
  std::mt19937 random(8);
  for (auto pattern :
       {KnownPattern::gpt2, KnownPattern::llama3, KnownPattern::qwen2, KnownPattern::o200k})
    for (int i = 0; i < 2000; ++i) {
      std::string sample;
      for (size_t n = random() % 40; n > 0; --n) sample += static_cast<char>(random() % 256);
      std::array<uint32_t, 3> ends;
      size_t at = 0;
      uint32_t last = 0;
      while (at < sample.size()) {
        const size_t count = scan_words(pattern, sample, at, ends.data(), ends.size());
        REQUIRE(count > 0);
        for (size_t k = 0; k < count; ++k) {
          REQUIRE(ends[k] > last);
          last = ends[k];
        }
      }
      CHECK(last == sample.size());
    }
}

TEST_CASE("a megabyte of blanks, letters or marks is scanned in one go") {
  for (auto pattern : {KnownPattern::gpt2, KnownPattern::llama3}) {
    for (const char* piece : {" ", "a", "!", "\n", "中"}) {
      std::string text;
      while (text.size() < (size_t{1} << 20)) text += piece;
      auto words = words_by(*split_known(pattern), text);
      CHECK(words.size() == 1);
      words = words_by(*split_known(pattern), text + "x");
      CHECK(words.size() <= 3);  // the last blank may stand alone
    }
  }
}

TEST_CASE("split behaviors") {
  auto split = [](SplitBehavior behavior, bool invert, const char* text) {
    return words_by(*split_regex(Regex::literal("-"), behavior, invert), text);
  };
  using V = std::vector<std::string>;
  CHECK(split(SplitBehavior::removed, false, "the-final--countdown") ==
        V{"the", "final", "countdown"});
  CHECK(split(SplitBehavior::isolated, false, "the-final--countdown") ==
        V{"the", "-", "final", "-", "-", "countdown"});
  CHECK(split(SplitBehavior::merged_with_previous, false, "the-final--countdown") ==
        V{"the-", "final-", "-", "countdown"});
  CHECK(split(SplitBehavior::merged_with_next, false, "the-final--countdown") ==
        V{"the", "-final", "-", "-countdown"});
  CHECK(split(SplitBehavior::contiguous, false, "the-final--countdown") ==
        V{"the", "-", "final", "--", "countdown"});
  CHECK(split(SplitBehavior::removed, true, "a-b--") == V{"-", "-", "-"});
}

TEST_CASE("invalid and endless regular expressions are refused") {
  CHECK_THROWS_WITH_AS(Regex("(a", "tokenizer.json: x"), doctest::Contains("tokenizer.json: x"),
                       Error);
  Regex slow("(a+)+$", "test");
  CHECK_THROWS_WITH_AS(slow.each(std::string(64, 'a') + "b", [](size_t, size_t) {}),
                       doctest::Contains("exceeds the limit of steps"), Error);
}

TEST_CASE("scripts are split as the library tokenizers 0.23.3 does") {
  using Texts = std::vector<std::string>;
  const std::vector<std::pair<std::string, Texts>> cases = {
      {"どこで生れたか。Yes", {"どこで生れたか", "。", "Yes"}},
      {" abc", {"abc"}},
      {"  ", {}},
      {"", {}},
      {"abc 日本語カー text", {"abc ", "日本語カー ", "text"}},
      {"Αβγ абв, 12 אב", {"Αβγ ", "абв", ", 12 ", "אב"}},
      {"١٢ ab\u0301c한국어ไทย!", {"١٢ ", "ab", "\u0301", "c", "한국어", "ไทย", "!"}},
      {"\u0378a", {"a"}},
      {"a\u0378ж", {"a\u0378", "ж"}},
      {"ー長", {"ー長"}},
      {"\u200Dx", {"\u200D", "x"}}};
  for (const auto& [text, wanted] : cases) {
    INFO(text);
    CHECK(words_by(*split_scripts(), text) == wanted);
  }
}
