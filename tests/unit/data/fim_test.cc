#include "mtrain/data/fim.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "../finetune/byte_tokenizer.h"

using namespace mtrain;
using mtrain::testing::ByteTokenizer;

namespace {

constexpr int32_t kPrefix = 'P', kMiddle = 'M', kSuffix = 'S', kPad = '_', kEod = '|';

FimConfig fim_config(double rate, double spm_rate, bool by_token = false) {
  return {.rate = rate,
          .spm_rate = spm_rate,
          .by_token = by_token,
          .prefix = kPrefix,
          .middle = kMiddle,
          .suffix = kSuffix,
          .pad = kPad,
          .eod = kEod};
}

std::string applied(const FimConfig& fim_config, uint64_t sample, const std::string& text,
                    uint64_t seed = 1) {
  ByteTokenizer tokenizer;
  std::vector<int32_t> ids = tokenizer.encode(text);
  FimTransform(tokenizer, fim_config, seed).apply(sample, ids);
  return tokenizer.decode_bytes(ids);
}

/// The text that "P…S…M…" or "PS…M…" was made from; nothing when it is neither.
std::optional<std::string> undone(const std::string& text, bool& spm) {
  const size_t s = text.find('S'), m = text.find('M');
  if (text[0] != 'P' || s == text.npos || m == text.npos || m < s) return std::nullopt;
  const std::string first = text.substr(1, s - 1), second = text.substr(s + 1, m - s - 1),
                    third = text.substr(m + 1);
  spm = s == 1 && first.empty();
  return first + third + second;  // PSM: prefix, suffix, middle
}

}  // namespace

TEST_CASE(
    "a document becomes prefix, suffix and middle, or suffix, prefix and middle, split anywhere") {
  for (bool by_token : {false, true}) {
    std::map<std::pair<size_t, size_t>, int> splits;
    for (uint64_t sample = 0; sample < 4000; ++sample) {
      bool spm = false;
      std::string truncated = applied(fim_config(1, 0, by_token), sample, "abcd");
      REQUIRE(truncated.size() == 4);
      std::string whole = applied(fim_config(1, 0, by_token), sample,
                                  "||||abcd");  // empty documents lose their ends: room
      REQUIRE(whole.size() == 8);
      auto back = undone(whole.substr(0, 7), spm);
      REQUIRE(back);
      CHECK(*back == "abcd");
      CHECK(whole.starts_with(truncated));
      CHECK(whole[7] == '_');
      ++splits[{whole.find('S') - 1, whole.find('M') - whole.find('S') - 1}];
    }
    CHECK(splits.size() == 15);  // 0 <= first <= second <= 4
    for (const auto& [split, count] : splits) {
      const bool equal = split.first + split.second == 4;  // both draws the same
      CHECK(count > (equal ? 100 : 240));                  // of 4000/25, and of twice that
      CHECK(count < (equal ? 220 : 400));
    }
  }
  std::string spm = applied(fim_config(1, 1), 5, "||||abcd");
  CHECK(spm.substr(0, 2) == "PS");
  std::string rest = spm.substr(2, 5);  // suffix M prefix middle
  const size_t mark = rest.find('M');
  CHECK(rest.substr(mark + 1) + rest.substr(0, mark) == "abcd");
}

TEST_CASE("the rates are kept, document by document") {
  int rearranged = 0, spm = 0;
  for (uint64_t sample = 0; sample < 2000; ++sample) {
    std::string out = applied(fim_config(0.3, 0.25), sample, "||||||||||||||abcd|efgh");
    size_t end = out.find('|');
    for (const std::string& part : {out.substr(0, end), out.substr(end + 1)})
      if (part[0] == 'P') ++rearranged, spm += part[1] == 'S' && part[2] != 'M' ? 1 : 0;
  }
  CHECK(rearranged > 1080);  // 4000 · 0.3 = 1200, deviation 29
  CHECK(rearranged < 1320);
  // 192 of them, and 252 with an empty prefix before the suffix, deviation 19; 336 or 552 at a rate
  // of 0 or 0.5.
  CHECK(spm > 385);
  CHECK(spm < 505);
  CHECK(applied(fim_config(0, 1), 3, "abc|def") == "abc|def");
}

TEST_CASE(
    "a sample is a function of seed and number; characters are never split; some documents stay") {
  CHECK(applied(fim_config(1, 0.5), 9, "some text|and more") ==
        applied(fim_config(1, 0.5), 9, "some text|and more"));
  CHECK(applied(fim_config(1, 0.5), 9, "some text|and more") !=
        applied(fim_config(1, 0.5), 10, "some text|and more"));
  CHECK(applied(fim_config(1, 0.5), 9, "some text|and more") !=
        applied(fim_config(1, 0.5), 9, "some text|and more", 2));
  for (uint64_t sample = 0; sample < 50; ++sample) {
    std::string out = applied(fim_config(1, 0), sample,
                              "|||||"
                              "\xC3\xA4\xC3\xB6\xC3\xBC");
    for (size_t i = 0; i < out.size(); ++i)
      if (static_cast<unsigned char>(out[i]) == 0xC3)
        CHECK((static_cast<unsigned char>(out[i + 1]) & 0xC0) == 0x80);
  }
  FimConfig keep = fim_config(1, 0);
  keep.no_prefix = "def";
  std::string out = applied(keep, 1, "|||def a|xyz");
  CHECK(out.substr(0, 6) == "def a|");
  CHECK(out[6] == 'P');
  FimConfig fragments = fim_config(1, 0);
  fragments.fragment = '/';
  fragments.fragment_rate = 1;
  out = applied(fragments, 1, "||||||||a/bc");
  CHECK(std::count(out.begin(), out.end(), 'P') == 2);
  CHECK(std::count(out.begin(), out.end(), '/') == 1);
  fragments.fragment_rate = 0;
  CHECK(applied(fragments, 1, "a/bc|abc").substr(0, 5) == "a/bc|");
}
