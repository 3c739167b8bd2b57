// How tokens lie on context-parallel ranks: each once, nothing padded, equal rows, equal work.
#include "mtrain/dist/context_slice.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "mtrain/base/rng.h"
#include "mtrain/base/text.h"
#include "mtrain/dist/context_places.h"

namespace mtrain {
namespace {

std::vector<int32_t> bounds_of(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> bounds = {0};
  for (int32_t n : lengths) bounds.push_back(bounds.back() + n);
  return bounds;
}

// Sequences of random lengths, short ones among them, that make `total` tokens.
std::vector<int32_t> random_lengths(int32_t total, uint64_t key) {
  RngStream rng(key, "lengths");
  std::vector<int32_t> lengths;
  for (uint64_t i = 0; total > 0; ++i) {
    auto n = static_cast<int32_t>(rng.uniform(2 * i) < 0.4f ? 1 + rng.words(2 * i + 1)[0] % 7
                                                            : 1 + rng.words(2 * i + 1)[0] % 90);
    lengths.push_back(std::min(n, total));
    total -= lengths.back();
  }
  return lengths;
}

std::vector<int64_t> tokens_of(const ContextSlice& slice) {
  std::vector<int64_t> tokens;
  for (const RowRange& r : slice.tokens())
    for (int64_t i = 0; i < r.rows; ++i) tokens.push_back(r.first + i);
  return tokens;
}

TEST_CASE("a context slice: one sequence in 2n chunks, the first with the last") {
  std::vector<int32_t> bounds = {0, 16};
  CHECK(tokens_of(ContextSlice(bounds, 4, 0)) == std::vector<int64_t>{0, 1, 14, 15});
  CHECK(tokens_of(ContextSlice(bounds, 4, 1)) == std::vector<int64_t>{2, 3, 12, 13});
  CHECK(tokens_of(ContextSlice(bounds, 4, 3)) == std::vector<int64_t>{6, 7, 8, 9});
  CHECK(ContextSlice(bounds, 4, 3).tokens() == std::vector<RowRange>{{6, 4}});
  CHECK(tokens_of(ContextSlice(bounds, 1, 0)).size() == 16);
}

TEST_CASE(
    "a context slice: every token on one rank, in order within its sequence, as many rows on all "
    "ranks") {
  for (int ranks : {1, 2, 3, 4, 8})
    for (uint64_t key = 0; key < 20; ++key) {
      std::vector<int32_t> lengths = random_lengths(240, key), bounds = bounds_of(lengths);
      std::vector<int> seen(240);
      for (int rank = 0; rank < ranks; ++rank) {
        ContextSlice slice(bounds, ranks, rank);
        CHECK(slice.rows() == 240 / ranks);
        std::vector<int64_t> tokens = tokens_of(slice);
        CHECK(static_cast<int64_t>(tokens.size()) == slice.rows());
        CHECK(std::is_sorted(tokens.begin(), tokens.end()));
        for (int64_t t : tokens) ++seen[static_cast<size_t>(t)];
        std::vector<int32_t> numbers(240);
        std::iota(numbers.begin(), numbers.end(), 0);
        std::vector<int32_t> taken = slice.take(numbers);
        CHECK(std::equal(taken.begin(), taken.end(), tokens.begin(), tokens.end()));
      }
      CHECK(std::count(seen.begin(), seen.end(), 1) == 240);
    }
}

TEST_CASE("a context slice: where tokens do not divide, ranks differ by one row") {
  for (int ranks : {2, 3, 4, 8})
    for (int32_t total : {1, 2, 5, 239}) {
      std::vector<int32_t> bounds = bounds_of(random_lengths(total, 3));
      ContextRing ring = ContextSlice(bounds, ranks, 0).ring();
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(ring.rows(rank) >= total / ranks);
        CHECK(ring.rows(rank) <= (total + ranks - 1) / ranks);
      }
      CHECK(ring.even() == (total % ranks == 0));
      CHECK(ring.tokens() == total);
    }
}

TEST_CASE("a context slice: causal attention is the same work on every rank") {
  std::vector<int32_t> bounds = {0, 4096, 4096 + 1024};
  for (int ranks : {2, 4, 8}) {
    int64_t all = 0, most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      int64_t pairs = 0;
      for (int64_t t : tokens_of(ContextSlice(bounds, ranks, rank)))
        pairs += t < 4096 ? t + 1 : t - 4095;
      all += pairs;
      most = std::max(most, pairs);
    }
    CHECK(most * ranks == all);
  }
}

TEST_CASE("a context ring: groups of ranks are a ring, and their rows can be put in order") {
  for (uint64_t key = 0; key < 10; ++key) {
    std::vector<int32_t> lengths = random_lengths(240, key), bounds = bounds_of(lengths);
    for (auto [ranks, near] : {std::pair{4, 2}, {8, 2}, {8, 4}, {8, 8}, {6, 3}, {2, 1}}) {
      ContextRing ring = ContextSlice(bounds, ranks, 0).ring(), groups = ring.of_groups(near);
      CHECK(groups.ranks() == ranks / near);
      CHECK(groups.tokens() == 240);
      for (int group = 0; group < groups.ranks(); ++group) {
        std::vector<int64_t> laid;  // tokens as the ranks of the group hold them
        for (int i = 0; i < near; ++i)
          for (int64_t t : tokens_of(ContextSlice(bounds, ranks, group * near + i)))
            laid.push_back(t);
        std::vector<int64_t> got, want;
        for (const RowRange& r : ring.in_order(group * near, near))
          for (int64_t i = 0; i < r.rows; ++i)
            got.push_back(laid[static_cast<size_t>(r.first + i)]);
        for (int64_t s = 0; s < groups.sequences(); ++s) {
          CHECK(groups.row(group, s) == static_cast<int64_t>(want.size()));
          int64_t start = bounds[static_cast<size_t>(s)];
          for (int64_t i = 0; i < groups.early(group, s); ++i)
            want.push_back(start + groups.early_at(group, s) + i);
          for (int64_t i = 0; i < groups.late(group, s); ++i)
            want.push_back(start + groups.late_at(group, s) + i);
        }
        CHECK(got == want);
      }
    }
  }
}

std::vector<ContextPlace> places_of(const std::vector<int32_t>& lengths, int ranks, int64_t most) {
  return context_places(lengths, ranks, most);
}

TEST_CASE("context places: a sequence takes the ranks that its length asks for") {
  CHECK(places_of({64, 16, 16, 16, 16}, 4, 16) ==
        std::vector<ContextPlace>{{0, 4}, {0, 1}, {1, 1}, {2, 1}, {3, 1}});
  CHECK(places_of({17, 8, 9}, 4, 16) == std::vector<ContextPlace>{{0, 2}, {3, 1}, {2, 1}});
  CHECK(places_of({100}, 1, 16) == std::vector<ContextPlace>{{0, 1}});
  CHECK(places_of({1000, 0}, 6, 16) == std::vector<ContextPlace>{{0, 6}, {0, 1}});
  CHECK(places_of({60, 30, 10}, 6, 30) ==
        std::vector<ContextPlace>{{0, 6}, {0, 1}, {1, 1}});  // no rank is left without
  CHECK(places_of({16}, 4, 16) == std::vector<ContextPlace>{{0, 4}});
}

TEST_CASE("a sized context slice: every token on one rank, no rank with much more than its share") {
  for (int ranks : {1, 2, 4, 6, 8})
    for (int64_t most : {16, 40, 100})
      for (uint64_t key = 0; key < 10; ++key) {
        std::vector<int32_t> lengths = random_lengths(480, key), bounds = bounds_of(lengths);
        std::vector<int> seen(480);
        for (int rank = 0; rank < ranks; ++rank) {
          ContextSlice slice = ContextSlice::sized(bounds, ranks, rank, most);
          CHECK(slice.rows() <= 480 / ranks + most + static_cast<int64_t>(lengths.size()));
          CHECK(slice.rows() > 0);
          CHECK(slice.bounds().back() == slice.rows());
          for (int64_t t : tokens_of(slice)) ++seen[static_cast<size_t>(t)];
          int64_t row = 0;
          for (const ContextSlice::Part& part : slice.parts()) {
            CHECK(part.row == row);
            row += part.ring.rows(rank - part.first_rank);
            for (int64_t s = 0; s < part.ring.sequences(); ++s)
              CHECK(part.ring.length(rank - part.first_rank, s) <=
                    std::max<int64_t>(most, 480 / ranks));
          }
        }
        CHECK(std::count(seen.begin(), seen.end(), 1) == 480);
      }
}

}  // namespace
}  // namespace mtrain
