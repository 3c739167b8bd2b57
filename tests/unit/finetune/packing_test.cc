#include "mtrain/finetune/packing.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "byte_tokenizer.h"
#include "mtrain/base/rng.h"
#include "mtrain/data/loader.h"
#include "mtrain/data/permutation.h"
#include "mtrain/finetune/packed_source.h"

using namespace mtrain;
using namespace mtrain::finetune;

namespace {

std::vector<int32_t> random_lengths(size_t count, int32_t capacity, uint64_t seed) {
  RngStream random(seed, "lengths");
  std::vector<int32_t> out;
  for (size_t i = 0; i < count; ++i)
    out.push_back(1 + static_cast<int32_t>(random.words(i)[0] % static_cast<uint32_t>(capacity)));
  return out;
}

/// First fit decreasing as it is defined, in quadratic time.
std::vector<std::vector<int32_t>> plain_packing(const std::vector<int32_t>& lengths,
                                                int32_t capacity) {
  std::vector<int32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  std::vector<std::vector<int32_t>> packs;
  std::vector<int32_t> room;
  for (int32_t item : order) {
    const int32_t length = lengths[static_cast<size_t>(item)];
    size_t p = 0;
    while (p < room.size() && room[p] < length) ++p;
    if (p == room.size()) packs.emplace_back(), room.push_back(capacity);
    packs[p].push_back(item);
    room[p] -= length;
  }
  return packs;
}

std::shared_ptr<const ExampleStore> store_of(const std::vector<std::vector<int32_t>>& examples) {
  auto out = std::make_shared<ExampleStore>();
  for (const auto& ids : examples) {
    std::vector<uint8_t> trained(ids.size(), 1);
    trained[0] = 0;
    out->add({ids, trained});
  }
  return out;
}

}  // namespace

TEST_CASE("packing is first fit decreasing") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const int32_t capacity = seed % 2 ? 64 : 7;
    auto lengths = random_lengths(1 + seed * 37, capacity, seed);
    Packs packs = pack_first_fit_decreasing(lengths, capacity);
    auto wanted = plain_packing(lengths, capacity);
    REQUIRE(packs.size() == static_cast<int64_t>(wanted.size()));
    for (size_t p = 0; p < wanted.size(); ++p) {
      auto got = packs[static_cast<int64_t>(p)];
      CHECK(std::vector<int32_t>(got.begin(), got.end()) == wanted[p]);
    }
  }
  CHECK(pack_first_fit_decreasing({}, 5).size() == 0);
  CHECK(pack_singly(3)[2][0] == 2);
}

TEST_CASE("a permutation takes every value once, and differs by seed, stream and step") {
  for (int64_t size : {1, 2, 3, 7, 64, 1000, 4097}) {
    Permutation order(size, 5, 6, 7);
    std::set<int64_t> seen;
    for (int64_t i = 0; i < size; ++i) {
      REQUIRE((order(i) >= 0 && order(i) < size));
      seen.insert(order(i));
    }
    CHECK(static_cast<int64_t>(seen.size()) == size);
  }
  auto first = [](uint64_t seed, uint64_t stream, uint64_t step) {
    Permutation order(1 << 20, seed, stream, step);
    return std::vector<int64_t>{order(0), order(1), order(2)};
  };
  CHECK(first(1, 2, 3) == first(1, 2, 3));
  std::set<std::vector<int64_t>> all = {first(1, 2, 3), first(2, 2, 3), first(1, 3, 3),
                                        first(1, 2, 4)};
  CHECK(all.size() == 4);
  // Every place is as likely as any other: 10 values, 10 places, 20,000 orders; chi-squared with 81
  // degrees of freedom.
  std::array<std::array<int, 10>, 10> counts{};
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    Permutation order(10, seed, 1, 0);
    for (int64_t i = 0; i < 10; ++i)
      ++counts[static_cast<size_t>(i)][static_cast<size_t>(order(i))];
  }
  double chi = 0;
  for (const auto& row : counts)
    for (int count : row) chi += (count - 2000.0) * (count - 2000.0) / 2000;
  CHECK(chi < 140);  // 99.995 %
}

TEST_CASE(
    "a sample holds its examples apart, each from position 0, and padding that counts for "
    "nothing") {
  auto store = store_of({{10, 11, 12, 13}, {20, 21, 22}, {30, 31}});
  auto packs = std::make_shared<Packs>(Packs{{0, 2, 1}, {0, 2, 3}});
  PackedSource source(store, packs, {}, 99);
  REQUIRE(source.size() == 2);
  std::vector<int32_t> tokens(6), targets(6), positions(6);
  Sample sample{tokens, targets, positions, {}};
  source.get(0, sample);
  CHECK(tokens == std::vector<int32_t>{10, 11, 12, 30, 99, 99});
  CHECK(targets == std::vector<int32_t>{11, 12, 13, 31, -1, -1});
  CHECK(positions == std::vector<int32_t>{0, 1, 2, 0, 0, 1});
  CHECK(sample.starts == std::vector<int32_t>{0, 3, 4});
  CHECK(sample.padding == 2);
  source.get(1, sample);
  CHECK(sample.starts == std::vector<int32_t>{0, 2});
  CHECK(sample.padding == 4);
}

TEST_CASE(
    "each epoch has every example once in an order of its own, and goes on anywhere at any "
    "data-parallel size") {
  std::vector<std::vector<int32_t>> examples;
  for (int32_t i = 0; i < 30; ++i) examples.push_back({i, i});
  auto store = store_of(examples);
  auto packs = std::make_shared<const Packs>(pack_singly(30));
  PackedSource source(store, packs, {.num_samples = 61, .shuffle_seed = 7}, 0);
  REQUIRE(source.size() == 90);
  std::vector<std::vector<int32_t>> epochs(3);
  std::vector<int32_t> one(1), target(1), position(1);
  Sample sample{one, target, position, {}};
  for (int64_t i = 0; i < 90; ++i)
    source.get(i, sample), epochs[static_cast<size_t>(i / 30)].push_back(one[0]);
  for (auto& epoch : epochs) CHECK(std::set<int32_t>(epoch.begin(), epoch.end()).size() == 30);
  CHECK(epochs[0] != epochs[1]);
  CHECK(epochs[1] != epochs[2]);
  std::vector<int32_t> all;
  for (const auto& epoch : epochs) all.insert(all.end(), epoch.begin(), epoch.end());
  for (int64_t dp : {1, 2, 3, 6}) {  // 24 samples in, a run goes on over dp ranks
    std::vector<int32_t> got;
    for (int64_t step = 0; step < 2; ++step)
      for (int64_t rank = 0; rank < dp; ++rank) {
        Loader loader(source,
                      {.seq_length = 1, .micro_batch_size = 6 / dp, .dp_rank = rank, .dp_size = dp},
                      24 + 6 * step);
        auto batch = loader.next();
        got.insert(got.end(), batch[0].tokens.begin(), batch[0].tokens.end());
      }
    CHECK(got == std::vector<int32_t>(all.begin() + 24, all.begin() + 36));
  }
}

TEST_CASE("passes over the data are rounded to the nearest hundredth") {
  CHECK(epochs_text(64, 64) == "1 epoch");
  CHECK(epochs_text(199, 100) == "1.99 epochs");
  CHECK(epochs_text(5, 3) == "1.67 epochs");
  CHECK(epochs_text(2999, 3000) == "1 epoch");
  CHECK(epochs_text(1, 2) == "0.5 epochs");
  CHECK(epochs_text(9, 3) == "3 epochs");
}
