#include "mtrain/data/masking.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "mtrain/base/error.h"
#include "mtrain/data/dataset.h"

using namespace mtrain;

namespace {

constexpr int32_t kMask = 1;

/// Ids 0 and 1 are special, 2 is a hole, the rest are words or go on with one.
class PieceTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "pieces"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(kTexts.size()); }
  std::optional<int32_t> eod() const override { return 0; }
  std::vector<SpecialToken> special_tokens() const override { return {{"[MASK]", kMask}}; }
  void encode_to(std::string_view, std::vector<int32_t>&) const override {}
  std::string decode_bytes(std::span<const int32_t> ids) const override {
    MT_USER_CHECK(ids[0] != 2, ErrorClass::data, "no token", "");
    return kTexts[static_cast<size_t>(ids[0])];
  }
  std::string identity() const override { return "pieces"; }

 private:
  const std::vector<std::string> kTexts = {"[END]", "",      "",    "the", "##", "###",
                                           "walk",  "##ing", "##s", "a",   "##b"};
};

/// 40 ids: 0 to 4 are special, and of the others every fourth goes on with a word.
MaskingConfig masking_config(double probability, bool whole_words = false) {
  MaskingConfig out{.probability = probability, .whole_words = whole_words, .mask = kMask};
  for (int id = 0; id < 40; ++id)
    out.kinds.push_back(id < 5        ? TokenKind::special
                        : id % 4 == 3 ? TokenKind::continuation
                                      : TokenKind::ordinary);
  return out;
}

struct Masked {
  std::vector<int32_t> before, tokens, targets;
  bool operator==(const Masked&) const = default;
};

Masked masked(const MaskingConfig& masking_config, uint64_t sample, std::vector<int32_t> ids,
              uint64_t seed = 3, std::string_view stream = "test") {
  Masked out{ids, ids, std::vector<int32_t>(ids.size(), 7)};
  Masking(masking_config, seed, stream).apply(sample, out.tokens, out.targets);
  return out;
}

/// 64 ids; every eighth is special.
std::vector<int32_t> text(int32_t shift = 0) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 64; ++i) ids.push_back(i % 8 == 5 ? i % 5 : 5 + (i * 11 + shift) % 35);
  return ids;
}

int64_t count_targets(const Masked& m) {
  return std::count_if(m.targets.begin(), m.targets.end(),
                       [](int32_t id) { return id != kIgnoredTarget; });
}

}  // namespace

TEST_CASE("kinds of tokens: special ones and holes, words, and what goes on with a word") {
  using enum TokenKind;
  CHECK(token_kinds(PieceTokenizer()) ==
        std::vector<TokenKind>{special, special, special, ordinary, ordinary, ordinary, ordinary,
                               continuation, continuation, ordinary, continuation});
}

TEST_CASE(
    "masking: the shares of tokens to predict, and of these the shares that are masked, random or "
    "unchanged") {
  const MaskingConfig c = masking_config(0.15);
  const int samples = 4000, wanted = 8;  // 56 ordinary tokens, 8.4 of them
  double hidden = 0, kept = 0, random = 0;
  std::vector<int> chosen(64), drawn(40);
  for (uint64_t sample = 0; sample < samples; ++sample) {
    Masked m = masked(c, sample, text());
    REQUIRE(count_targets(m) == wanted);
    for (size_t i = 0; i < m.tokens.size(); ++i) {
      if (m.targets[i] == kIgnoredTarget) {
        REQUIRE(m.tokens[i] == m.before[i]);
        continue;
      }
      REQUIRE(m.targets[i] == m.before[i]);
      REQUIRE(m.before[i] >= 5);  // a special token is never chosen
      ++chosen[i];
      if (m.tokens[i] == kMask) {
        ++hidden;
      } else if (m.tokens[i] == m.before[i]) {
        ++kept;  // and one in 35 of the random ones
      } else {
        REQUIRE(m.tokens[i] >= 5);  // nor drawn
        ++drawn[static_cast<size_t>(m.tokens[i])];
        ++random;
      }
    }
  }
  const double all = samples * wanted;
  CHECK(std::abs(hidden / all - 0.8) < 0.01);
  CHECK(std::abs(random / all - 0.1 * 34 / 35) < 0.007);
  CHECK(std::abs(kept / all - 0.1 * 36 / 35) < 0.007);
  for (size_t i = 0; i < 64; ++i)
    if (i % 8 != 5)
      CHECK(std::abs(chosen[i] / (all / 56) - 1) < 0.2);  // 571 times, with a deviation of 22
  for (size_t id = 5; id < 40; ++id) CHECK(std::abs(drawn[id] / (random / 35) - 1) < 0.5);
}

TEST_CASE("masking: shares of 0 and 1 are kept to") {
  MaskingConfig c = masking_config(0.5);
  c.mask_share = 1, c.random_share = 0;
  Masked hidden = masked(c, 1, text());
  for (size_t i = 0; i < 64; ++i)
    CHECK((hidden.targets[i] == kIgnoredTarget || hidden.tokens[i] == kMask));
  c.mask_share = 0;
  CHECK(masked(c, 1, text()).tokens == text());
  c.random_share = 1;
  Masked random = masked(c, 1, text());
  CHECK(std::count(random.tokens.begin(), random.tokens.end(), kMask) ==
        std::count(random.before.begin(), random.before.end(), kMask));
  CHECK(random.tokens != random.before);
}

TEST_CASE("masking: one target at least where a token can be one, none where none can") {
  for (uint64_t sample = 0; sample < 50; ++sample) {
    CHECK(count_targets(masked(masking_config(0.01), sample, {0, 9, 2, 10})) == 1);
    CHECK(masked(masking_config(0.01), sample, {0, 9, 2}).targets ==
          std::vector<int32_t>{kIgnoredTarget, 9, kIgnoredTarget});
    CHECK(count_targets(masked(masking_config(0.9), sample, {0, 1, 2, -1, 40, 1000})) == 0);
  }
}

TEST_CASE("masking: a function of seed, stream and sample") {
  const MaskingConfig c = masking_config(0.15);
  CHECK(masked(c, 7, text()) == masked(c, 7, text()));
  CHECK(masked(c, 7, text()).targets != masked(c, 8, text()).targets);
  CHECK(masked(c, 7, text()).targets != masked(c, 7, text(), 4).targets);
  CHECK(masked(c, 7, text()).targets != masked(c, 7, text(), 3, "other").targets);
}

TEST_CASE("masking: whole words are predicted whole, as many as fit") {
  const MaskingConfig c = masking_config(0.3, true);
  int64_t words = 0, several = 0;
  for (uint64_t sample = 0; sample < 500; ++sample) {
    Masked m = masked(c, sample, text(static_cast<int32_t>(sample)));
    const int64_t count = count_targets(m);
    CHECK(count > 0);
    CHECK(count <= 17);  // 0.3 * 56
    CHECK(count >= 12);
    for (size_t i = 0; i < 64; ++i) {
      const bool target = m.targets[i] != kIgnoredTarget;
      const bool goes_on = i > 0 &&
                           c.kinds[static_cast<size_t>(m.before[i])] == TokenKind::continuation &&
                           m.before[i - 1] >= 5;
      if (goes_on) CHECK(target == (m.targets[i - 1] != kIgnoredTarget));
      words += target && !goes_on;
      several += target && goes_on;
    }
  }
  CHECK(words > 0);
  CHECK(several > 0);
  // A word that is longer than all that is wanted is still taken where nothing else is.
  CHECK(count_targets(masked(masking_config(0.1, true), 1, {0, 9, 7, 11, 15})) == 4);
  // What goes on with a word begins one after a special token and at the sample's start.
  for (uint64_t sample = 0; sample < 20; ++sample)
    CHECK(count_targets(masked(masking_config(0.5, true), sample, {7, 0, 11})) == 1);
}
