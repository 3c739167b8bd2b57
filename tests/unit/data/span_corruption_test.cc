#include "mtrain/data/span_corruption.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "data_files.h"
#include "roots.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

constexpr int32_t kEndToken = 1, kFirstSentinel = 99999;

SpanCorruptionConfig span_config(const SpanShares& shares, int count = 2000) {
  SpanCorruptionConfig out{.shares = shares, .sentinels = {}, .end = kEndToken};
  for (int32_t k = 0; k < count; ++k) out.sentinels.push_back(kFirstSentinel - k);
  return out;
}

/// 100, 101, 102 …: every token of the text is another.
std::vector<int32_t> counted(int64_t tokens) {
  std::vector<int32_t> out(static_cast<size_t>(tokens));
  std::iota(out.begin(), out.end(), 100);
  return out;
}

/// The parts of a sample: the pieces of text that were kept, and those that were removed.
struct Parts {
  std::vector<std::vector<int32_t>> kept, removed;
  std::vector<int32_t> text() const {
    std::vector<int32_t> out;
    for (size_t i = 0; i < removed.size(); ++i) {
      out.insert(out.end(), kept[i].begin(), kept[i].end());
      out.insert(out.end(), removed[i].begin(), removed[i].end());
    }
    return out;
  }
};

/// Reads a sample as its reader would, sentinel by sentinel; nothing when a mark is missing or out
/// of order.
std::optional<Parts> read(std::span<const int32_t> ids, const SpanLengths& lengths, bool closing) {
  Parts out;
  size_t at = 0;
  auto piece = [&](int32_t until) {
    std::vector<int32_t> part;
    while (at < ids.size() && ids[at] >= 100 && ids[at] < 90000) part.push_back(ids[at++]);
    if (at == ids.size() || ids[at] != until) return std::optional<std::vector<int32_t>>{};
    ++at;
    return std::optional(part);
  };
  auto sentinel = [](int64_t k) { return kFirstSentinel - static_cast<int32_t>(k); };
  for (int64_t k = 0; k < lengths.spans; ++k) {
    auto part = piece(sentinel(k));
    if (!part) return std::nullopt;
    out.kept.push_back(*part);
  }
  if (auto end = piece(kEndToken);
      !end || !end->empty() || static_cast<int64_t>(at) != lengths.inputs)
    return std::nullopt;
  if (auto first = piece(sentinel(0)); !first || !first->empty()) return std::nullopt;
  for (int64_t k = 0; k < lengths.spans; ++k) {
    const bool last = k + 1 == lengths.spans;
    auto part = piece(last && !closing ? kEndToken : sentinel(k + 1));
    if (!part) return std::nullopt;
    out.removed.push_back(*part);
  }
  if (closing)
    if (auto end = piece(kEndToken); !end || !end->empty()) return std::nullopt;
  if (at != ids.size() || static_cast<int64_t>(at) != lengths.inputs + lengths.targets)
    return std::nullopt;
  return out;
}

}  // namespace

TEST_CASE("512 places of text and 114 of spans are 568 tokens, as the paper's code has it") {
  const SpanShares t5;
  CHECK(span_lengths(568, t5) ==
        SpanLengths{.removed_tokens = 85, .spans = 28, .inputs = 512, .targets = 114});
  CHECK(span_lengths(569, t5).inputs > 512);
  CHECK(longest_text(512 + 114, t5) == 568);
}

TEST_CASE("lengths are those of another implementation") {
  const auto golden =
      nlohmann::json::parse(read_file(source_root() / "tests/golden/span_lengths/golden.json"));
  int checked = 0;
  for (const auto& set : golden["sets"]) {
    const SpanShares shares{set["share"], set["mean"], set["closing"]};
    CAPTURE(set["share"].get<double>());
    CAPTURE(set["mean"].get<int64_t>());
    for (const auto& row : set["texts"]) {
      CHECK(span_lengths(row[0], shares) == SpanLengths{row[1], row[2], row[3], row[4]});
      ++checked;
    }
    for (const auto& row : set["longest"]) {
      CHECK_MESSAGE(longest_text(row[0], shares) == row[1].get<int64_t>(), row[0]);
      ++checked;
    }
  }
  CHECK(checked == 9 * 40);
}

TEST_CASE("a text fills its places but for two at most") {
  for (const SpanShares& shares :
       {SpanShares{}, SpanShares{.mask_probability = 0.5, .mean_span = 1, .closing_sentinel = true},
        SpanShares{.mask_probability = 0.02, .mean_span = 64}})
    for (int64_t places = 16; places < 1200; ++places) {
      const SpanLengths lengths = span_lengths(longest_text(places, shares), shares);
      const int64_t left = places - lengths.inputs - lengths.targets;
      REQUIRE((left >= 0 && left <= 2));
    }
}

TEST_CASE(
    "inputs and targets put together again are the text, with the requested number of tokens "
    "removed") {
  for (const SpanShares& shares : {SpanShares{}, SpanShares{.closing_sentinel = true},
                                   SpanShares{.mask_probability = 0.5, .mean_span = 8},
                                   SpanShares{.mask_probability = 0.95, .mean_span = 1},
                                   SpanShares{.mask_probability = 0.001, .mean_span = 100}})
    for (int64_t tokens : {2, 3, 7, 100, 568}) {
      CAPTURE(shares.mask_probability);
      CAPTURE(tokens);
      const SpanCorruption corruption(span_config(shares), tokens, 7, "test");
      const std::vector<int32_t> text = counted(tokens);
      for (uint64_t sample = 0; sample < 40; ++sample) {
        std::vector<int32_t> ids;
        corruption.apply(sample, text, ids);
        auto parts = read(ids, corruption.lengths(), shares.closing_sentinel);
        REQUIRE(parts);
        CHECK(parts->text() == text);
        for (const auto& list : {parts->kept, parts->removed})
          for (const auto& part : list) CHECK_FALSE(part.empty());
      }
    }
}

TEST_CASE("spans have the wanted mean, and every division is as likely as any other") {
  const SpanCorruption t5(span_config({}), 568, 1, "test");
  double sum = 0, count = 0;
  std::set<size_t> seen;
  for (uint64_t sample = 0; sample < 200; ++sample) {
    std::vector<int32_t> ids;
    t5.apply(sample, counted(568), ids);
    const auto parts = read(ids, t5.lengths(), false);
    REQUIRE(parts);
    for (const auto& span : parts->removed)
      sum += static_cast<double>(span.size()), ++count, seen.insert(span.size());
  }
  CHECK(sum / count == doctest::Approx(85.0 / 28));  // in each sample, not only on average
  CHECK(*seen.begin() == 1);
  CHECK(*seen.rbegin() > 9);

  // Four of eight tokens in two spans: three ways to divide the removed tokens, three to divide
  // what stays.
  const SpanCorruption small(span_config({.mask_probability = 0.5, .mean_span = 2}), 8, 1, "test");
  REQUIRE(small.lengths().spans == 2);
  std::map<std::pair<size_t, size_t>, int> ways;
  for (uint64_t sample = 0; sample < 9000; ++sample) {
    std::vector<int32_t> ids;
    small.apply(sample, counted(8), ids);
    const auto parts = read(ids, small.lengths(), false);
    REQUIRE(parts);
    ++ways[{parts->kept[0].size(), parts->removed[0].size()}];
  }
  CHECK(ways.size() == 9);
  for (const auto& [way, times] : ways) {
    CHECK(times > 850);  // of 1000, deviation 30
    CHECK(times < 1150);
  }
}

TEST_CASE("what is removed is a function of seed, stream and sample") {
  const std::vector<int32_t> text = counted(568);
  auto made = [&](uint64_t seed, const char* stream, uint64_t sample) {
    std::vector<int32_t> ids = {5};  // what was there does not stay
    SpanCorruption(span_config({}), 568, seed, stream).apply(sample, text, ids);
    return ids;
  };
  CHECK(made(1, "a", 9) == made(1, "a", 9));
  CHECK(made(1, "a", 9) != made(1, "a", 10));
  CHECK(made(1, "a", 9) != made(2, "a", 9));
  CHECK(made(1, "a", 9) != made(1, "b", 9));
}

TEST_CASE("a text that holds a sentinel is refused, and so are too few sentinels") {
  const SpanCorruption corruption(span_config({}, 28), 568, 1, "test");
  std::vector<int32_t> text = counted(568), ids;
  text[300] = kFirstSentinel - 27;
  expect_error(ErrorClass::data, {"token 300", "id 99972", "dataset.sentinel"},
               [&] { corruption.apply(0, text, ids); });
  text[300] = kFirstSentinel - 28;  // one that is not in use
  corruption.apply(0, text, ids);
  expect_error(ErrorClass::bug, {"27 sentinels of 28"},
               [] { SpanCorruption(span_config({}, 27), 568, 1, "test"); });
  expect_error(ErrorClass::bug, {"28 sentinels of 29"},
               [] { SpanCorruption(span_config({.closing_sentinel = true}, 28), 568, 1, "test"); });
}
