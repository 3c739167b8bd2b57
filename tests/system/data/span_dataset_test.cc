// The datasets t5 and t5_seq2seq, loaded as a run loads them, and trained on.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "../cli/shell.h"
#include "built_plugins.h"
#include "data_files.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/data/dataset.h"
#include "mtrain/data/indexed_writer.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin_host.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

constexpr int32_t kByteEod = 256, kLastExtra = 257 + 99;

class Spans {
 public:
  Spans() : host_(built_plugins()) {
    byte = tokenizer("byte", "extra_ids: 100");
    write("x", 60, 50, 0);
    write("y", 60, 50, 100);
  }
  std::unique_ptr<Tokenizer> tokenizer(const char* type, const char* yaml) {
    TokenizerContext context;
    return host_.make<Tokenizer>(type, parse_yaml(yaml), context);
  }
  std::unique_ptr<Dataset> make(const std::string& yaml, int64_t seq_length = 99,
                                uint64_t seed = 7) {
    return make(yaml, *byte, seq_length, seed);
  }
  std::unique_ptr<Dataset> make(const std::string& yaml, const Tokenizer& tokenizer,
                                int64_t seq_length, uint64_t seed = 7, const char* type = "t5") {
    DatasetContext context{.seq_length = seq_length,
                           .seed = seed,
                           .base_directory = scratch.path(),
                           .tokenizer = &tokenizer,
                           .log_summary = false};
    return host_.make<Dataset>(type, parse_yaml(yaml), context);
  }
  /// Documents of rising bytes from `first` on, a hundred different ones, and an end.
  void write(std::string_view name, int documents, int length, int first) {
    IndexedWriter writer(scratch / name, DType::u16, {.overwrite = true});
    int next = 0;
    for (int d = 0; d < documents; ++d) {
      std::vector<int32_t> ids;
      for (int i = 1; i < length; ++i) ids.push_back(first + next++ % 100);
      ids.push_back(kByteEod);
      writer.add_sequence(ids);
      writer.end_document();
    }
    writer.finish();
  }

  ScratchFolder scratch;
  std::unique_ptr<Tokenizer> byte;

 private:
  PluginHost host_;
};

struct Item {
  std::vector<int32_t> tokens, targets, positions, starts;
  bool operator==(const Item&) const = default;
};

Item item(const SampleSource& source, int64_t index, size_t seq = 99) {
  Item out{std::vector<int32_t>(seq), std::vector<int32_t>(seq), std::vector<int32_t>(seq), {}};
  Sample sample{out.tokens, out.targets, out.positions, {9, 9}};
  source.get(index, sample);
  out.starts = sample.starts;
  return out;
}

/// The ids of a sample in which all tokens are targets.
std::vector<int32_t> ids_of(const Item& sample) {
  std::vector<int32_t> out = {sample.tokens[0]};
  for (int32_t target : sample.targets)
    if (target != kIgnoredTarget) out.push_back(target);
  return out;
}

/// The text of a sample, its spans back in their places.
std::vector<int32_t> restored(const std::vector<int32_t>& ids) {
  const auto first = std::find(ids.begin(), ids.end(), kLastExtra);
  const auto second = std::find(first + 1, ids.end(), kLastExtra);  // the targets begin here
  std::map<int32_t, std::vector<int32_t>> spans;
  int32_t mark = 0;
  for (auto at = second; at + 1 != ids.end(); ++at) {
    if (*at > kByteEod)
      mark = *at;
    else
      spans[mark].push_back(*at);
  }
  std::vector<int32_t> text;
  for (auto at = ids.begin(); at + 1 != second; ++at) {
    if (*at > kByteEod)
      text.insert(text.end(), spans[*at].begin(), spans[*at].end());
    else
      text.push_back(*at);
  }
  return text;
}

}  // namespace

TEST_CASE("a sample of t5 is a text followed by its spans, and only the spans are trained on") {
  Spans spans;
  // 89 tokens of text, 13 of them removed in 4 spans: 81 places of text and 18 of spans, of 100.
  auto source = spans.make("{path: x, split: '1'}")->split(Split::train, Dataset::kOneEpoch);
  auto all =
      spans.make("{path: x, split: '1', loss: all}")->split(Split::train, Dataset::kOneEpoch);
  REQUIRE(source->size() > 20);
  for (int64_t i = 0; i < source->size(); ++i) {
    const Item trained = item(*source, i), whole = item(*all, i);
    CHECK(trained.starts == std::vector<int32_t>{0});
    for (size_t t = 0; t < 99; ++t) CHECK(trained.positions[t] == static_cast<int32_t>(t));
    CHECK(trained.tokens == whole.tokens);
    size_t first = 0;
    while (first < 99 && trained.targets[first] == kIgnoredTarget) ++first;
    CHECK(trained.targets[first] ==
          kLastExtra);  // the first sentinel, predicted from the end of the text
    CHECK(trained.tokens[first] == kByteEod);
    for (size_t t = 0; t < 99; ++t) {
      if (whole.targets[t] == kIgnoredTarget)
        CHECK(t >= 97);  // nothing but what does not fill the sample
      else if (t + 1 < 99)
        CHECK(whole.targets[t] == whole.tokens[t + 1]);
      if (t >= first) CHECK(trained.targets[t] == whole.targets[t]);
    }
    const std::vector<int32_t> ids = ids_of(whole), text = restored(ids);
    CHECK(ids.size() == 99);
    REQUIRE(text.size() == 89);
    for (size_t t = 0; t + 1 < text.size(); ++t)  // the bytes of a document follow each other
      if (text[t] != kByteEod && text[t + 1] != kByteEod) CHECK(text[t + 1] == (text[t] + 1) % 100);
  }
}

TEST_CASE("a sample of t5_seq2seq is a text for the encoder and its spans for the decoder") {
  Spans spans;
  constexpr size_t kSeq = 103, kText = 81, kEncoder = 84, kTargets = 18;
  auto make = [&](const std::string& more) {
    return spans.make(cat("{path: x, split: '1', decoder_seq_length: 19", more, "}"), *spans.byte,
                      kSeq, 7, "t5_seq2seq");
  };
  CHECK(make("")->objective() == Dataset::kSequenceToSequence);
  // 89 tokens of text, 13 of them removed in 4 spans: 81 of 84 positions, and 18 of 19.
  auto source = make("")->split(Split::train, Dataset::kOneEpoch),
       marked = make(", start_token: <extra_id_99>")->split(Split::train, Dataset::kOneEpoch);
  REQUIRE(source->size() > 20);
  for (int64_t i = 0; i < source->size(); ++i) {
    const Item here = item(*source, i, kSeq);
    CHECK(here.starts == std::vector<int32_t>{0, kText, kEncoder});
    for (size_t t = 0; t < kSeq; ++t)
      CHECK(here.positions[t] == static_cast<int32_t>(t < kText      ? t
                                                      : t < kEncoder ? t - kText
                                                                     : t - kEncoder));
    for (size_t t = 0; t < kEncoder; ++t) CHECK(here.targets[t] == kIgnoredTarget);
    CHECK(here.tokens[kEncoder] == kByteEod);  // the start
    for (size_t t = kEncoder; t + 1 < kEncoder + kTargets; ++t)
      CHECK(here.tokens[t + 1] == here.targets[t]);
    CHECK(here.targets[kEncoder + kTargets] == kIgnoredTarget);
    std::vector<int32_t> ids(here.tokens.begin(), here.tokens.begin() + kText);
    ids.insert(ids.end(), here.targets.begin() + kEncoder,
               here.targets.begin() + kEncoder + kTargets);
    const std::vector<int32_t> text = restored(ids);
    CHECK(text.size() == 89);
    for (size_t t = 0; t + 1 < text.size(); ++t)
      if (text[t] != kByteEod && text[t + 1] != kByteEod) CHECK(text[t + 1] == (text[t] + 1) % 100);
    Item other = item(*marked, i, kSeq);
    CHECK(other.tokens[kEncoder] == 257);  // <extra_id_99> is the first one after the bytes
    other.tokens[kEncoder] = kByteEod;
    CHECK(other == here);
  }
  CHECK(make("")->identity() != make(", start_token: <extra_id_99>")->identity());
  CHECK_THROWS_AS(spans.make("{path: x, split: '1', decoder_seq_length: 2}", *spans.byte, kSeq, 7,
                             "t5_seq2seq"),
                  Error);
}

TEST_CASE("t5 draws new spans in each epoch, the same for a seed and a number, in either order") {
  Spans spans;
  for (const std::string order : {"megatron", "open"}) {
    CAPTURE(order);
    auto made = [&](uint64_t seed) {
      return spans.make(cat("{path: x, split: '1', order: ", order, "}"), 99, seed);
    };
    const int64_t epoch = made(7)->split(Split::train, Dataset::kOneEpoch)->size();
    auto source = made(7)->split(Split::train, 3 * epoch),
         again = made(7)->split(Split::train, 3 * epoch);
    auto other = made(8)->split(Split::train, 3 * epoch);
    std::set<std::vector<int32_t>> seen;
    for (int64_t i = 0; i < 3 * epoch; ++i) {
      const Item here = item(*source, i);
      CHECK(here == item(*again, i));
      CHECK_FALSE(here == item(*other, i));
      CHECK(seen.insert(here.tokens).second);
    }
    auto valid = spans.make("{path: x, split: '50,50,0'}")->split(Split::valid, 4);
    CHECK(item(*valid, 2) == item(*valid, 2));
  }
}

TEST_CASE("t5 blends pairs and divides documents as gpt does") {
  Spans spans;
  auto blend = spans.make("{paths: [x, y], weights: [3, 1], split: '1'}")->split(Split::train, 40);
  int from_y = 0;
  for (int64_t i = 0; i < 40; ++i)
    from_y += item(*blend, i).tokens[0] >= 100 && item(*blend, i).tokens[0] < 256 ? 1 : 0;
  CHECK(from_y >= 8);
  CHECK(from_y <= 10);
  expect_error(ErrorClass::data, {"valid split", "is empty"},
               [&] { spans.make("{path: x, split: '1'}")->split(Split::valid, 4); });
  expect_error(ErrorClass::data, {"train split of", "with 3000 tokens, but one sample takes"}, [&] {
    spans.make("{path: x, split: '1', mean_span: 32}", 4000)->split(Split::train, 4);
  });
}

TEST_CASE("t5 finds its sentinels by name or at the end of the vocabulary") {
  Spans spans;
  auto with = [&](const std::string& more) {
    return spans.make(cat("{path: x, split: '1'", more, "}"));
  };
  const auto named = with("")->split(Split::train, 4),
             last = with(", sentinel: ''")->split(Split::train, 4);
  for (int64_t i = 0; i < 4; ++i)
    CHECK(item(*named, i) == item(*last, i));  // <extra_id_0> is the last id
  auto closing = with(", closing_sentinel: true")->split(Split::train, 4);
  const Item sample = item(*closing, 0);
  CHECK(sample.tokens.back() == kLastExtra - 4);  // the fifth sentinel, after four spans
  CHECK(sample.targets.back() == kByteEod);
  auto byte = spans.tokenizer("byte", "{}"), few = spans.tokenizer("byte", "extra_ids: 2");
  struct Fault {
    const char* yaml;
    const Tokenizer* tokenizer;
    std::vector<std::string> says;
  };
  for (const Fault& fault : {
           Fault{"path: x",
                 byte.get(),
                 {"no special token '<extra_id_0>'", "dataset.sentinel", "tokenizer.extra_ids"}},
           {"path: x",
            few.get(),
            {"model.seq_length 99 needs 4 sentinels", "there are 2 in the tokenizer",
             "dataset.mean_span"}},
           {"{path: x, sentinels: 3}",
            spans.byte.get(),
            {"needs 4 sentinels", "there are 3", "raise dataset.sentinels"}},
           {"{path: x, sentinel: <mask>}", spans.byte.get(), {"'<mask>' has no {}"}},
           {"{path: x, sentinel: '', sentinels: 300}", byte.get(), {"300 of a vocabulary of 257"}},
           {"{path: x, sentinel: ''}", byte.get(), {"id 256 is both a sentinel and the end token"}},
           {"{path: x, end_token: <extra_id_3>}",
            spans.byte.get(),
            {"is both a sentinel and the end token"}},
           {"{path: x, end_token: <extra_id>}",
            spans.byte.get(),
            {"dataset.end_token", "not a special token"}},
           {"{path: x, mask_probability: 1}", spans.byte.get(), {"mask_probability"}},
           {"{path: x, mean_span: 0}", spans.byte.get(), {"mean_span"}},
           {"{path: x, loss: inputs}", spans.byte.get(), {"loss", "targets"}},
           {"{}", spans.byte.get(), {"dataset.path is not set"}},
       }) {
    CAPTURE(fault.yaml);
    for (const auto& says : fault.says)
      expect_error(ErrorClass::config, {says},
                   [&] { spans.make(fault.yaml, *fault.tokenizer, 99); });
  }
  expect_error(ErrorClass::config, {"model.seq_length 3 has no room"},
               [&] { spans.make("path: x", 3); });
  // A text that is made of sentinels.
  spans.write("clash", 10, 50, 257);
  auto clash = spans.make("{path: clash, split: '1'}");
  expect_error(ErrorClass::data, {"the train split of clash, sample 0", "which is a sentinel"},
               [&] { item(*clash->split(Split::train, 1), 0); });
}

TEST_CASE("the identity of t5 follows data, spans and sentinels") {
  Spans spans;
  std::set<std::string> seen = {spans.make("path: x")->identity()};
  CHECK(nlohmann::json::parse(*seen.begin())["dataset"] == "t5");
  CHECK(spans.make("{path: x, sentinels: 50}")->identity() ==
        *seen.begin());  // the same ones are in use
  for (const char* yaml :
       {"path: y", "{path: x, mask_probability: 0.2}", "{path: x, mean_span: 4}",
        "{path: x, split: '1'}", "{path: x, loss: all}", "{path: x, closing_sentinel: true}",
        "{path: x, order: open}", "{path: x, end_token: <extra_id_99>, sentinels: 50}"})
    CHECK_MESSAGE(seen.insert(spans.make(yaml)->identity()).second, yaml);
  CHECK(seen.insert(spans.make("path: x", 98)->identity()).second);
  CHECK(seen.insert(spans.make("path: x", 99, 8)->identity()).second);
}

TEST_CASE(
    "a model of the next token trains on t5, goes on exactly, and does so on any number of ranks") {
  Spans spans;
  put(spans.scratch / "r.yaml",
      "model: {type: llama, layers: 1, hidden_size: 32, heads: 2, ffn_hidden_size: 64, seq_length: "
      "64}\n"
      "tokenizer: {type: byte, extra_ids: 20}\n"
      "dataset: {type: t5, path: x, split: '1', sentinels: 20, order: open}\nvalidation: {steps: "
      "0}\n"
      "train: {steps: 6, micro_batch_size: 2, global_batch_size: 8}\ncheckpoint: {interval: 3}\n"
      "scheduler: {type: constant}\nmixed_precision: {dtype: fp32}\noptimizer: {type: adamw, lr: "
      "1e-2}\n"
      "logger: {tensorboard: false}\n");
  auto losses = [&](const std::string& words, const std::string& folder) {
    auto done = cli_in(spans.scratch.path(), cat("r.yaml -q run.dir=", folder, " ", words));
    REQUIRE_MESSAGE(done.status == 0, done.err);
    std::vector<double> out;
    std::istringstream lines(read_file(spans.scratch / folder / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (auto json = nlohmann::json::parse(line); json.contains("loss"))
        out.push_back(json["loss"]);
    return out;
  };
  const auto whole = losses("", "a");
  REQUIRE(whole.size() == 6);
  CHECK(whole[5] < whole[0] - 0.3);
  const auto two = losses("dist.nproc=2", "b");
  REQUIRE(two.size() == whole.size());
  for (size_t i = 0; i < whole.size(); ++i)
    CHECK(two[i] == doctest::Approx(whole[i]).epsilon(1e-4));
  losses("train.steps=3", "c");
  const auto rest = losses("", "c");
  REQUIRE(rest.size() >= 3);
  CHECK(std::vector<double>(rest.end() - 3, rest.end()) ==
        std::vector<double>(whole.end() - 3, whole.end()));
}
