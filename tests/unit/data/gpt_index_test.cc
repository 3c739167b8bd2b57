#include "mtrain/data/gpt_index.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "data_files.h"
#include "mtrain/base/hash.h"
#include "mtrain/data/numpy_random.h"
#include "roots.h"

using namespace mtrain;
using namespace mtrain::testing;
using Json = nlohmann::json;

namespace {

const Json& golden() {
  static const Json json =
      Json::parse(read_file(source_root() / "tests/golden/megatron_index/golden.json"));
  return json;
}

template <class T>
void check_digest(std::span<const T> got, const Json& want) {
  REQUIRE(got.size() == want["size"].get<size_t>());
  auto head = want["head"].get<std::vector<int64_t>>(),
       tail = want["tail"].get<std::vector<int64_t>>();
  for (size_t i = 0; i < head.size(); ++i) {
    CHECK(static_cast<int64_t>(got[i]) == head[i]);
    CHECK(static_cast<int64_t>(got[got.size() - tail.size() + i]) == tail[i]);
  }
  CHECK(sha256(std::as_bytes(got)) == want["sha256"].get<std::string>());
}

std::vector<int32_t> lengths_of(const Json& rule, int64_t count) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(
        static_cast<int32_t>((i * rule["step"].get<int64_t>() + rule["start"].get<int64_t>()) %
                                 rule["modulus"].get<int64_t>() +
                             rule["least"].get<int64_t>()));
  return out;
}

std::vector<int64_t> flat(std::span<const SampleStart> samples) {
  std::vector<int64_t> out;
  for (auto [position, offset] : samples)
    out.insert(out.end(), {int64_t{position}, int64_t{offset}});
  return out;
}

}  // namespace

TEST_CASE("shuffle and draws equal numpy's RandomState") {
  for (const Json& c : golden()["shuffles"]) {
    std::vector<int64_t> values(c["values"]["size"].get<size_t>());
    std::iota(values.begin(), values.end(), 0);
    NumpyRandom random(c["seed"].get<uint32_t>());
    random.shuffle(std::span(values));
    check_digest<int64_t>(values, c["values"]);
    CHECK(random.next32() == c["next"].get<uint32_t>());
  }
}

TEST_CASE("draws beyond 32 bits take two words, high word first") {
  NumpyRandom words(9), random(9);
  uint64_t high = words.next32(), low = words.next32();
  CHECK(random.interval(~uint64_t{0}) == (high << 32 | low));
  CHECK(random.interval(0) == 0);
  CHECK(random.next32() == words.next32());  // an interval of one value draws nothing
}

TEST_CASE("indices equal those computed with numpy") {
  for (const Json& c : golden()["indices"]) {
    CAPTURE(c.dump());
    auto lengths = lengths_of(c["lengths"], c["count"]);
    GptIndexConfig config{.seq_length = c["seq_length"],
                          .num_samples = c["num_samples"],
                          .seed = c["seed"],
                          .drop_last = c["drop_last"],
                          .extra_tokens = c["extra"]};
    GptIndex index = build_gpt_index(lengths, c["first"], config);
    const Json& want = c["index"];
    CHECK(index.num_epochs == want["epochs"].get<int64_t>());
    CHECK(index.separate_last_epoch == want["apart"].get<bool>());
    CHECK(index.tokens_per_epoch == want["tokens"].get<int64_t>());
    check_digest<int32_t>(index.documents, want["documents"]);
    check_digest<int64_t>(flat(index.samples), want["samples"]);
    check_digest<uint32_t>(index.shuffle, want["shuffle"]);
  }
}

TEST_CASE("sample and blending indices equal Megatron's own") {
  fs::path folder = shared_data("megatron");
  if (folder.empty()) return;
  auto json = Json::parse(read_file(folder / "golden_indices.json"));
  REQUIRE(json["sample_idx"].size() == 4);
  for (const Json& c : json["sample_idx"]) {
    GptIndexConfig config{.seq_length = c["seq_length"],
                          .drop_last = c["drop_last_partial_sequence"],
                          .extra_tokens = c["add_extra_token_to_sequence"]};
    auto samples = build_sample_index(c["sizes"].get<std::vector<int32_t>>(),
                                      c["document_idx"].get<std::vector<int32_t>>(),
                                      c["num_epochs"], c["tokens_per_epoch"], config);
    std::vector<int64_t> want;
    for (const Json& pair : c["sample_idx"])
      want.insert(want.end(), {pair[0].get<int64_t>(), pair[1].get<int64_t>()});
    CHECK(flat(samples) == want);
  }
  REQUIRE(json["blending"].size() == 5);
  for (const Json& c : json["blending"]) {
    auto index = blend(c["weights"].get<std::vector<double>>(), c["size"]);
    CHECK(index.dataset == c["dataset_index"].get<std::vector<int16_t>>());
    CHECK(index.sample == c["dataset_sample_index"].get<std::vector<int64_t>>());
  }
}

TEST_CASE("a dataset of weight 0 gives no sample, and the others are mixed as without it") {
  const std::vector<double> others = normalize_weights(std::vector{3.0, 1.0, 0.7});
  const BlendIndex without = blend(others, 500);
  for (size_t place = 0; place <= others.size(); ++place) {
    std::vector<double> weights = others;
    weights.insert(weights.begin() + static_cast<std::ptrdiff_t>(place), 0.0);
    const BlendIndex with = blend(weights, 500);
    CHECK(with.sample == without.sample);
    std::vector<int16_t> datasets = with.dataset;
    CHECK(std::count(datasets.begin(), datasets.end(), static_cast<int16_t>(place)) == 0);
    for (int16_t& d : datasets) d = static_cast<int16_t>(d - (d > static_cast<int16_t>(place)));
    CHECK(datasets == without.dataset);
  }
  CHECK(blend(std::vector{0.0, 1.0}, 3).dataset == std::vector<int16_t>{1, 1, 1});
  const std::vector<BlendPhase> phases = {{2, {1, 0}}, {3, {0, 1}}, {2, {1, 0}}};
  const BlendIndex phased = blend_phases(phases);
  CHECK(phased.dataset == std::vector<int16_t>{0, 0, 1, 1, 1, 0, 0});
  CHECK(phased.sample == std::vector<int64_t>{0, 1, 0, 1, 2, 2, 3});
}

TEST_CASE("an exhaustive blend uses every sample once, in proportion") {
  std::vector<int64_t> sizes = {3, 0, 6, 1};
  auto index = blend_exhaustive(sizes);
  REQUIRE(index.dataset.size() == 10);
  CHECK(index.dataset ==
        std::vector<int16_t>{2, 0, 3, 2, 2, 0, 2, 2, 0, 2});  // the rule, in Python's floats
  std::vector<int64_t> used(4, 0);
  for (size_t i = 0; i < index.dataset.size(); ++i)
    CHECK(index.sample[i] == used[static_cast<size_t>(index.dataset[i])]++);
  CHECK(used == sizes);
  CHECK(blend_exhaustive(std::vector<int64_t>{4, 2, 2}).dataset ==
        std::vector<int16_t>{0, 1, 2, 0, 0, 1, 2, 0});
}

TEST_CASE("splits round as Python does") {
  for (const Json& c : golden()["splits"]) {
    CAPTURE(c.dump());
    auto ends = c["ends"].get<std::vector<int64_t>>();
    auto ranges = split_ranges(c["shares"].get<std::string>(), c["count"]);
    for (size_t i = 0; i < 3; ++i) CHECK(ranges[i] == SequenceRange{ends[i], ends[i + 1]});
  }
}

TEST_CASE("weights are normalised in numpy's order of addition") {
  for (const Json& c : golden()["sums"]) {
    auto size = c["size"].get<size_t>();
    std::vector<double> weights;
    for (size_t i = 0; i < size; ++i)
      weights.push_back(static_cast<double>((i * 7919 + 13) % 1009 + 1) / 7.0);
    auto got = normalize_weights(weights);
    size_t at[] = {0, size / 2, size - 1};
    for (size_t i = 0; i < 3; ++i)
      CHECK(got[at[i]] == std::strtod(c["normalized"][i].get<std::string>().c_str(), nullptr));
  }
}

TEST_CASE("malformed shares and weights are refused") {
  for (const char* bad :
       {"", "a", "1,b", "-1,2", "1,2,3,4", "0,0,0", "1,,1", "1e3", "nan", "inf,1", "1;2", "0x10"})
    expect_error(ErrorClass::config, {}, [&] { split_ranges(bad, 10); });
  expect_error(ErrorClass::config, {"-1"}, [] { normalize_weights(std::vector{1.0, -1.0}); });
  expect_error(ErrorClass::config, {"add up"}, [] { normalize_weights(std::vector{0.0, 0.0}); });
  expect_error(ErrorClass::config, {}, [] { blend({}, 3); });
}

TEST_CASE("too little data and too many samples are refused") {
  std::vector<int32_t> lengths = {10, 0, 20};
  expect_error(ErrorClass::data, {"30 tokens", "31", "seq_length 30"},
               [&] { build_gpt_index(lengths, 0, {.seq_length = 30}); });
  CHECK(build_gpt_index(lengths, 0, {.seq_length = 29}).shuffle.size() == 1);
  expect_error(ErrorClass::data, {"0 tokens"}, [&] { build_gpt_index({}, 0, {.seq_length = 1}); });
  for (int64_t samples : {int64_t{1} << 33, int64_t{1} << 62, INT64_MAX})
    expect_error(ErrorClass::config, {"train.steps"},
                 [&] { build_gpt_index(lengths, 0, {.seq_length = 29, .num_samples = samples}); });
}

TEST_CASE("every epoch holds each document once, and at least the samples asked for exist") {
  std::vector<int32_t> lengths = lengths_of(golden()["indices"][0]["lengths"], 37);
  for (int64_t samples : {1, 10, 137, 138, 139, 1000, 1234}) {
    GptIndex index =
        build_gpt_index(lengths, 100, {.seq_length = 64, .num_samples = samples, .seed = 3});
    CHECK(static_cast<int64_t>(index.shuffle.size()) >= samples);
    std::vector<int> seen(37, 0);
    for (int32_t d : index.documents) ++seen.at(static_cast<size_t>(d - 100));
    for (int count : seen) CHECK(count == index.num_epochs);
    std::vector<int> used(index.shuffle.size(), 0);
    for (uint32_t s : index.shuffle) ++used.at(s);
    for (int count : used) CHECK(count == 1);
  }
}
