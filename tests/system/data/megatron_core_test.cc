// The samples of the gpt dataset against those of Megatron-core for the same files: every token,
// label and position, in order (tests/golden/megatron_core_generate.py says how they are made).
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "built_plugins.h"
#include "data_files.h"
#include "mtrain/base/hash.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/data/dataset.h"
#include "mtrain/data/indexed_writer.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin_host.h"
#include "roots.h"

using namespace mtrain;
using namespace mtrain::testing;
using Json = nlohmann::json;

namespace {

constexpr int32_t kEod = 65213;

/// Has an end of document, and nothing else that a dataset asks for.
class Numbers final : public Tokenizer {
 public:
  std::string name() const override { return "numbers"; }
  int64_t vocab_size() const override { return kEod + 1; }
  std::optional<int32_t> eod() const override { return kEod; }
  void encode_to(std::string_view, std::vector<int32_t>&) const override {}
  std::string decode_bytes(std::span<const int32_t>) const override { return {}; }
  std::string identity() const override { return "numbers"; }
};

void write_file(const fs::path& prefix, int64_t number, const Json& rule) {
  IndexedWriter writer(prefix, DType::u16, {.overwrite = true});
  int64_t token = 0;
  for (int64_t i = 0; i < rule["count"].get<int64_t>(); ++i) {
    const int64_t length = (i * rule["step"].get<int64_t>() + rule["start"].get<int64_t>()) %
                               rule["modulus"].get<int64_t>() +
                           rule["least"].get<int64_t>();
    std::vector<int32_t> ids;
    for (int64_t k = 0; k < length; ++k, ++token)
      ids.push_back(static_cast<int32_t>((token * 7 + 9973 * number) % kEod));
    ids.back() = kEod;
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
}

/// The settings of the dataset, with a split's paths under its prefix ("", "valid_", "test_").
Node settings_of(const Json& test, const ScratchFolder& scratch) {
  Json out{{"reset_position_ids", test["reset_position_ids"]},
           {"eod_mask_loss", test["eod_mask_loss"]},
           {"drop_last", test["drop_last"]}};
  auto add = [&](const std::string& prefix, const Json& files, const Json& weights) {
    std::vector<std::string> paths;
    for (const auto& file : files) paths.push_back((scratch / cat("f", file.get<int>())).string());
    if (paths.size() == 1)
      out[prefix + "path"] = paths[0];
    else
      out[prefix + "paths"] = paths;
    if (!weights.is_null() && paths.size() > 1) out[prefix + "weights"] = weights;
  };
  if (test["kind"].get<std::string>() == "per_split") {
    const char* prefixes[] = {"", "valid_", "test_"};
    for (size_t i = 0; i < 3; ++i)
      add(prefixes[i], test["parts"][i]["files"], test["parts"][i]["weights"]);
  } else {
    Json all = Json::array();
    for (size_t i = 0; i < test["files"].size(); ++i) all.push_back(i);
    add("", all, test["weights"]);
    out["split"] = test["split"];
  }
  return parse_yaml(out.dump());
}

void compare(const SampleSource& source, size_t seq, const Json& want) {
  const auto size = want["size"].get<int64_t>();
  const auto first = want["first"].get<std::vector<std::vector<int32_t>>>();
  REQUIRE(source.size() == size);
  std::vector<int32_t> tokens(seq), targets(seq), positions(seq), all, begin;
  Sample sample{tokens, targets, positions, {}};
  for (int64_t i = 0; i < size; ++i) {
    source.get(i, sample);
    begin.assign(tokens.begin(), tokens.begin() + 3);
    if (i < static_cast<int64_t>(first.size())) CHECK(begin == first[static_cast<size_t>(i)]);
    for (const auto* part : {&tokens, &targets, &positions})
      all.insert(all.end(), part->begin(), part->end());
  }
  CHECK(begin == want["last"].get<std::vector<int32_t>>());
  CHECK(sha256(std::as_bytes(std::span(all))) == want["sha256"].get<std::string>());
}

}  // namespace

TEST_CASE("the samples of random configurations are those of Megatron-core") {
  const Json golden =
      Json::parse(read_file(source_root() / "tests/golden/megatron_core/golden.json"));
  PluginHost host = built_plugins();
  const Numbers tokenizer;
  REQUIRE(golden["cases"].size() >= 20);
  size_t compared = 0;
  for (const Json& test : golden["cases"]) {
    CAPTURE(compared);
    ScratchFolder scratch;
    for (size_t f = 0; f < test["files"].size(); ++f)
      write_file(scratch / cat("f", f), static_cast<int64_t>(f), test["files"][f]);
    DatasetContext context{.seq_length = test["seq_length"].get<int64_t>(),
                           .seed = test["seed"].get<uint64_t>(),
                           .base_directory = scratch.path(),
                           .tokenizer = &tokenizer};
    auto dataset = host.make<Dataset>("gpt", settings_of(test, scratch), context);
    for (size_t i = 0; i < 3; ++i) {
      const Json& want = test["splits"][i];
      if (want.is_null() || want["size"].get<int64_t>() == 0) continue;
      CAPTURE(i);
      const auto size =
          test["sizes"][i].is_null() ? Dataset::kOneEpoch : test["sizes"][i].get<int64_t>();
      auto source = dataset->split(static_cast<Split>(i), size);
      compare(*source, test["seq_length"].get<size_t>(), want);
    }
    ++compared;
  }
}
