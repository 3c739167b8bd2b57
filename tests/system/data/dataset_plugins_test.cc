// The first-party tokenizer and datasets, loaded as a run loads them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "built_plugins.h"
#include "data_files.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/data/dataset.h"
#include "mtrain/data/indexed_writer.h"
#include "mtrain/data/loader.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin_host.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

class Plugins {
 public:
  Plugins() : host_(built_plugins()) {
    TokenizerContext context;
    byte = host_.make<Tokenizer>("byte", Node::map(), context);
  }
  std::unique_ptr<Dataset> dataset(std::string_view type, const std::string& yaml,
                                   DatasetContext context) {
    return host_.make<Dataset>(type, yaml.empty() ? Node::map() : parse_yaml(yaml), context);
  }
  std::unique_ptr<Tokenizer> byte;

 private:
  PluginHost host_;
};

/// `count` documents of `length` tokens; document d is all d modulo 251, then the end mark.
void write_documents(const fs::path& prefix, int count, int length, int first = 0) {
  IndexedWriter writer(prefix, DType::u16, {.overwrite = true});
  for (int d = 0; d < count; ++d) {
    std::vector<int32_t> ids(static_cast<size_t>(length), (first + d) % 251);
    ids.back() = 256;
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
}

std::vector<int32_t> first_tokens(const SampleSource& source, int64_t seq, int64_t count) {
  Loader loader(
      source,
      {.seq_length = seq, .micro_batch_size = 1, .num_micro_batches = count, .prefetch = false});
  std::vector<int32_t> out;
  for (const MicroBatch& batch : loader.next()) out.push_back(batch.tokens[0]);
  return out;
}

}  // namespace

TEST_CASE("the byte tokenizer is the identity on bytes") {
  Plugins plugins;
  const Tokenizer& byte = *plugins.byte;
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  auto ids = byte.encode(all);
  REQUIRE(ids.size() == 256);
  for (int c = 0; c < 256; ++c) CHECK(ids[static_cast<size_t>(c)] == c);
  CHECK(byte.decode_bytes(ids) == all);
  CHECK(byte.vocab_size() == 257);
  CHECK(byte.eod() == 256);
  CHECK(byte.decode_bytes(std::vector<int32_t>{104, 256, 105}) == "hi");
  CHECK(byte.decode(std::vector<int32_t>{0xE4, 0xBD, 104}) == "\xEF\xBF\xBDh");
  for (int32_t bad : {-1, 257, INT32_MAX})
    expect_error(ErrorClass::data, {std::to_string(bad), "257"},
                 [&] { byte.decode_bytes(std::vector<int32_t>{bad}); });
}

TEST_CASE("gpt divides the documents among the splits and repeats them as needed") {
  Plugins plugins;
  ScratchFolder scratch;
  write_documents(scratch / "x", 100, 20);
  auto gpt = plugins.dataset("gpt", "path: x\nsplit: 80,15,5",
                             {.seq_length = 19,
                              .seed = 7,
                              .base_directory = scratch.path(),
                              .tokenizer = plugins.byte.get()});
  struct Part {
    Split which;
    int begin, end;
  };
  for (Part part :
       {Part{Split::train, 0, 80}, Part{Split::valid, 80, 95}, Part{Split::test, 95, 100}}) {
    auto once = gpt->split(part.which, Dataset::kOneEpoch);
    CHECK(once->size() == ((part.end - part.begin) * 20 - 1) / 19);
    auto thrice = gpt->split(part.which, 3 * once->size());
    CHECK(thrice->size() >= 3 * once->size());
    std::set<int32_t> seen;
    for (int64_t i = 0; i < thrice->size(); ++i) {
      std::vector<int32_t> tokens(19), targets(19), positions(19);
      Sample sample{tokens, targets, positions, {}};
      thrice->get(i, sample);
      seen.insert(tokens.begin(), tokens.end());
      seen.insert(targets.begin(), targets.end());
    }
    seen.erase(256);
    CHECK(*seen.begin() == part.begin);
    CHECK(*seen.rbegin() == part.end - 1);
    CHECK(static_cast<int>(seen.size()) == part.end - part.begin);
  }
}

TEST_CASE("gpt takes validation from files of its own when they are given") {
  Plugins plugins;
  ScratchFolder scratch;
  write_documents(scratch / "x", 10, 11);
  write_documents(scratch / "v", 4, 11, 200);
  DatasetContext context{.seq_length = 10,
                         .seed = 7,
                         .base_directory = scratch.path(),
                         .tokenizer = plugins.byte.get()};
  auto gpt = plugins.dataset("gpt", "{path: x, valid_path: v}", context);
  CHECK(gpt->split(Split::train, Dataset::kOneEpoch)->size() == 10);  // all of x
  for (int32_t token : first_tokens(*gpt->split(Split::valid, 4), 10, 4)) CHECK(token >= 200);
  expect_error(ErrorClass::config, {"test", "dataset.test_path"},
               [&] { gpt->split(Split::test, 4); });
}

TEST_CASE("gpt blends by weight, and by size when there are no weights") {
  Plugins plugins;
  ScratchFolder scratch;
  write_documents(scratch / "a", 30, 11);       // 0 … 29
  write_documents(scratch / "b", 60, 11, 100);  // 100 … 159
  DatasetContext context{.seq_length = 10,
                         .seed = 7,
                         .base_directory = scratch.path(),
                         .tokenizer = plugins.byte.get()};
  auto from_b = [](const std::vector<int32_t>& tokens) {
    return std::count_if(tokens.begin(), tokens.end(),
                         [](int32_t t) { return t >= 100 && t < 256; });
  };
  auto weighted = plugins.dataset("gpt", "{paths: [a, b], weights: [3, 1], split: '1'}", context);
  auto source = weighted->split(Split::train, 200);
  CHECK(source->size() == 200);
  auto tokens = first_tokens(*source, 10, 200);
  CHECK(from_b(tokens) + std::count(tokens.begin(), tokens.end(), 256) >= 50);
  CHECK(from_b(tokens) <= 50);
  std::string
      paths = "a",
      weights =
          "100";  // rounding up 200 small shares gives the large one far more than its surplus
  for (int i = 0; i < 200; ++i) paths += ", b", weights += ", 0.5";
  auto many = plugins.dataset(
      "gpt", cat("{paths: [", paths, "], weights: [", weights, "], split: '1'}"), context);
  CHECK(many->split(Split::train, 100)->size() == 50 + 200);
  expect_error(ErrorClass::config, {"one epoch", "train.steps instead of train.epochs"},
               [&] { weighted->split(Split::train, Dataset::kOneEpoch); });

  // A pair of weight 0 gives no sample, also where the split has no document of it.
  write_documents(scratch / "tiny", 1, 11, 100);
  for (const char* order : {"megatron", "open"}) {
    auto zero = plugins.dataset(
        "gpt",
        cat("{paths: [tiny, a, b], weights: [0, 1, 0], split: '50,50', ", "order: ", order, "}"),
        context);
    for (Split which : {Split::train, Split::valid})
      CHECK(from_b(first_tokens(*zero->split(which, 40), 10, 40)) == 0);
  }

  auto by_size = plugins.dataset("gpt", "{paths: [a, b], split: '1'}", context);
  auto all = by_size->split(Split::train, Dataset::kOneEpoch);
  CHECK(all->size() == (30 * 11 - 1) / 10 + (60 * 11 - 1) / 10);
  CHECK(by_size->split(Split::train, 50)->size() == 50);
  expect_error(ErrorClass::data, {"97 samples", "98 that are needed", "dataset.weights"},
               [&] { by_size->split(Split::train, 98); });
}

TEST_CASE("in open order steps and later weights may change, and nothing comes twice in an epoch") {
  Plugins plugins;
  ScratchFolder scratch;
  write_documents(scratch / "a", 100, 11);       // 0 … 99
  write_documents(scratch / "b", 100, 11, 100);  // 100 … 199
  DatasetContext context{.seq_length = 10,
                         .seed = 7,
                         .base_directory = scratch.path(),
                         .tokenizer = plugins.byte.get()};
  auto made = [&](const std::string& more) {
    return plugins.dataset("gpt", cat("{paths: [a, b], split: '1', order: open, ", more, "}"),
                           context);
  };
  auto before = made("weights: [3, 1]");
  auto after = made("weights: [1, 3], phases: [{samples: 40, weights: [3, 1]}]");
  const auto first = first_tokens(*before->split(Split::train, 40), 10, 40);
  const auto longer = first_tokens(*before->split(Split::train, 80), 10, 80);
  CHECK(std::vector<int32_t>(longer.begin(), longer.begin() + 40) == first);
  const auto changed = first_tokens(*after->split(Split::train, 120), 10, 120);
  CHECK(std::vector<int32_t>(changed.begin(), changed.begin() + 40) == first);
  // One in eleven samples begins with an end of document.
  auto from_a = [](auto begin, auto end) {
    return std::count_if(begin, end, [](int32_t t) { return t < 100; });
  };
  CHECK(from_a(changed.begin(), changed.begin() + 40) >= 22);
  CHECK(from_a(changed.begin() + 40, changed.end()) <= 22);
  // 50 samples of a, 70 of b: within an epoch of each.
  auto source = after->split(Split::train, 120);
  std::set<std::vector<int32_t>> seen;
  for (int64_t i = 0; i < 120; ++i) {
    std::vector<int32_t> tokens(10), targets(10), positions(10);
    Sample sample{tokens, targets, positions, {}};
    source->get(i, sample);
    CHECK(seen.insert(tokens).second);
  }
  CHECK(before->identity_until(40) == after->identity_until(40));
  CHECK(before->identity_until(41) != after->identity_until(41));
  CHECK(before->identity_until(20) == after->identity_until(20));
  CHECK(before->identity() != after->identity());
  auto megatron = plugins.dataset("gpt", "{paths: [a, b], split: '1', weights: [3, 1]}", context);
  CHECK(megatron->identity_until(5) == megatron->identity());
  auto one = plugins.dataset("gpt", "{path: a, split: '1', order: open}", context);
  auto epochs = first_tokens(*one->split(Split::train, 200), 10, 200);
  CHECK(std::vector<int32_t>(epochs.begin(), epochs.begin() + 100) !=
        std::vector<int32_t>(epochs.begin() + 100, epochs.end()));
  // Numbers in phases are read as those of settings.
  CHECK(made("weights: [3, 1], phases: [{samples: 1k, weights: [1, 1]}]")->identity_until(2000) ==
        made("weights: [3, 1], phases: [{samples: 1000, weights: [1, 1]}]")->identity_until(2000));
  expect_error(ErrorClass::config, {"dataset.phases[0]", ".samples: "},
               [&] { made("weights: [3, 1], phases: [{samples: many, weights: [1, 1]}]"); });
  for (const char* bad : {"weights: [3, 1], phases: {}", "weights: [3, 1], phases: [{samples: 3}]",
                          "phases: [{samples: 3, weights: [1, 1]}]",
                          "weights: [3, 1], phases: [{samples: 0, weights: [1, 1]}]",
                          "weights: [3, 1], phases: [{samples: 3, weights: [1]}]"})
    expect_error(ErrorClass::config, {"dataset.phases", "samples: 64000"}, [&] { made(bad); });
}

namespace {

/// Fifty documents for samples of 19 tokens, and datasets of them whose every document is
/// rearranged.
struct FimFixture {
  FimFixture() { write_documents(scratch / "x", 50, 20); }
  auto fim(const std::string& more) {
    const std::string marks = "prefix: <|endoftext|>, middle: <|endoftext|>, suffix: <|endoftext|>";
    return plugins.dataset(
        "gpt", cat("{path: x, split: '1', ", more, "fim: {rate: 1, cut: tokens, ", marks, "}}"),
        context);
  }
  Plugins plugins;
  ScratchFolder scratch;
  DatasetContext context{.seq_length = 19,
                         .seed = 7,
                         .base_directory = scratch.path(),
                         .tokenizer = plugins.byte.get()};
};

/// The tokens of a sample, which is the same each time, and whose targets are the next ones.
std::vector<int32_t> tokens_of(const SampleSource& source, int64_t index) {
  std::vector<int32_t> tokens(19), targets(19), positions(19), again(19);
  Sample first{again, targets, positions, {}}, second{tokens, targets, positions, {}};
  source.get(index, first);
  source.get(index, second);
  CHECK(tokens == again);
  for (size_t t = 0; t + 1 < 19; ++t) REQUIRE(targets[t] == tokens[t + 1]);
  return tokens;
}

}  // namespace

TEST_CASE(
    "a document that comes again in another epoch of the open order is rearranged in another way") {
  FimFixture lab;
  auto dataset = lab.fim("order: open, ");
  auto source = dataset->split(Split::train, 98);
  auto epoch = [&](int64_t first) {
    std::set<std::vector<int32_t>> out;
    for (int64_t i = first; i < first + 49; ++i) out.insert(tokens_of(*source, i));
    return out;
  };
  const auto first = epoch(0), second = epoch(49);
  const auto alike = std::count_if(first.begin(), first.end(),
                                   [&](const auto& tokens) { return second.contains(tokens); });
  CHECK(first.size() == 49);
  CHECK(alike < 10);  // some are split at the same places by chance
}

TEST_CASE("gpt rearranges documents for fill in the middle, the same each time") {
  FimFixture lab;
  auto fim = lab.fim(""), plain = lab.plugins.dataset("gpt", "{path: x, split: '1'}", lab.context);
  CHECK(fim->identity() != plain->identity());
  auto source = fim->split(Split::train, 100), as_it_is = plain->split(Split::train, 100);
  int changed = 0;
  for (int64_t i = 0; i < 49; ++i)
    changed += tokens_of(*source, i) != tokens_of(*as_it_is, i) ? 1 : 0;
  CHECK(changed == 49);  // each begins with a mark
  expect_error(ErrorClass::config, {"dataset.fim.prefix is not set"},
               [&] { lab.plugins.dataset("gpt", "{path: x, fim: {rate: 0.5}}", lab.context); });
  expect_error(ErrorClass::config, {"dataset.fim.middle", "'<mid>' is not a special token"}, [&] {
    lab.plugins.dataset(
        "gpt",
        "{path: x, fim: {rate: 0.5, prefix: <|endoftext|>, middle: <mid>, suffix: <|endoftext|>}}",
        lab.context);
  });
}

TEST_CASE("gpt says what is wrong and what to do") {
  Plugins plugins;
  ScratchFolder scratch;
  write_documents(scratch / "x", 5, 20);
  put(scratch / "book.txt", "text");
  put(scratch / "web.jsonl", "{}");
  DatasetContext context{.seq_length = 8,
                         .seed = 1,
                         .base_directory = scratch.path(),
                         .tokenizer = plugins.byte.get()};
  auto made = [&](const char* yaml) { return plugins.dataset("gpt", yaml, context); };
  struct Fault {
    const char* yaml;
    ErrorClass error_class;
    std::vector<std::string> says;
  };
  for (const Fault& fault : {
           Fault{"", ErrorClass::config, {"dataset.path is not set"}},
           {"{path: x, paths: [x]}", ErrorClass::config, {"both set"}},
           {"{path: x, weights: [1]}", ErrorClass::config, {"1 value for 0"}},
           {"{paths: [x, x], weights: [1]}", ErrorClass::config, {"1 value for 2"}},
           {"{paths: [x], weights: [0]}", ErrorClass::config, {"add up to 0"}},
           {"{path: x, split: abc}", ErrorClass::config, {"'abc' is not a share"}},
           {"{path: x, splits: '1'}", ErrorClass::config, {"splits"}},
           {"{path: nowhere}", ErrorClass::data, {"nowhere.idx does not exist"}},
           {"{path: book.txt}",
            ErrorClass::data,
            {"is text", "mtrain data prepare --input", "book.txt --output", "--tokenizer byte"}},
           {"{path: web.jsonl}", ErrorClass::data, {"mtrain data prepare", "web.jsonl"}},
       }) {
    CAPTURE(fault.yaml);
    for (const auto& says : fault.says)
      expect_error(fault.error_class, {says}, [&] { made(fault.yaml); });
  }
  expect_error(
      ErrorClass::data,
      {"valid split", "is empty", "5 documents", "4 to train", "0 to valid", "1 to test"},
      [&] { made("{path: x, split: '8,1,1'}")->split(Split::valid, 1); });  // 4.5 rounds to 4
  write_documents(scratch / "one", 1, 40);
  try {  // one document can be divided by no split
    (void)made("{path: one, split: '90,10,0'}")->split(Split::valid, 1);
    FAIL_CHECK("no error");
  } catch (const Error& error) {
    CHECK(error.message().find("its 1 document at the shares 90,10,0 gives 1 to train") !=
          std::string::npos);
    CHECK(error.hint().find("change dataset.split") == std::string::npos);
    for (const char* remedy :
         {"--split-on lines", "--document-bytes", "dataset.valid_path", "validation.steps=0"})
      CHECK_MESSAGE(error.hint().find(remedy) != std::string::npos, error.hint());
  }
  context.seq_length = 200;
  expect_error(ErrorClass::data, {"train split", "100 tokens", "201"},
               [&] { made("{path: x, split: '1'}")->split(Split::train, 1); });
  context.seq_length = 8;
  context.seed = uint64_t{1} << 32;
  expect_error(ErrorClass::config, {"4294967296", "rng.seed"}, [&] { made("path: x"); });
  context.seed = 1;
  context.tokenizer = nullptr;
  expect_error(ErrorClass::config, {"end-of-document"},
               [&] { made("{path: x, eod_mask_loss: true}"); });
}

TEST_CASE("settings that act at ends of documents are refused where no token marks one") {
  Plugins plugins;
  ScratchFolder scratch;
  auto write = [&](const char* name, std::vector<int32_t> ids) {
    IndexedWriter writer(scratch / name, DType::u16, {.overwrite = true});
    for (int d = 0; d < 3; ++d) {
      writer.add_sequence(ids);
      writer.end_document();
    }
    writer.finish();
  };
  write("unmarked", {1, 2, 3, 4, 5, 6, 7, 8, 9});
  write("ends", {1, 2, 3, 4, 5, 6, 7, 8, 256});
  write("inside", {1, 2, 3, 256, 5, 6, 7, 8, 9});  // several documents as one
  const DatasetContext context{.seq_length = 8,
                               .seed = 1,
                               .base_directory = scratch.path(),
                               .tokenizer = plugins.byte.get()};
  auto made = [&](const std::string& yaml) {
    return plugins.dataset("gpt", cat("{split: '1', ", yaml, "}"), context);
  };
  CHECK(made("path: unmarked"));
  for (const std::string setting :
       {"reset_attention_mask", "reset_position_ids", "eod_mask_loss"}) {
    CHECK(made(cat("path: ends, ", setting, ": true")));
    CHECK(made(cat("path: inside, ", setting, ": true")));
    for (const char* files :
         {"path: unmarked", "paths: [ends, unmarked]", "path: ends, valid_path: unmarked"})
      expect_error(ErrorClass::data,
                   {cat("dataset.", setting, "=true"), "unmarked has no end of document (id 256)",
                    "--append-eod", cat("dataset.", setting, "=false")},
                   [&] { made(cat(files, ", ", setting, ": true")); });
  }
}

TEST_CASE("the identity of gpt follows data and order") {
  Plugins plugins;
  ScratchFolder scratch;
  write_documents(scratch / "x", 20, 20);
  DatasetContext context{.seq_length = 8,
                         .seed = 1,
                         .base_directory = scratch.path(),
                         .tokenizer = plugins.byte.get()};
  auto identity = [&](const char* yaml) {
    return plugins.dataset("gpt", yaml, context)->identity();
  };
  std::set<std::string> seen;
  auto base = identity("path: x");
  CHECK(nlohmann::json::parse(base)["dataset"] == "gpt");
  CHECK(identity("{path: x, split: '969,30,1'}") == base);
  seen.insert(base);
  for (const char* yaml :
       {"{path: x, split: '1'}", "{path: x, eod_mask_loss: true}", "{paths: [x, x]}",
        "{paths: [x, x], weights: [1, 2]}", "{path: x, valid_path: x}"})
    CHECK(seen.insert(identity(yaml)).second);
  context.seed = 2;
  CHECK(seen.insert(identity("path: x")).second);
  context.seed = 1;
  auto bin = read_file(scratch / "x.bin");
  bin[100] ^= 1;
  put(scratch / "x.bin", bin);
  CHECK(seen.insert(identity("path: x")).second);
}

TEST_CASE("mock is endless, the same every time, and learnable") {
  Plugins plugins;
  DatasetContext context{
      .seq_length = 512, .seed = 3, .base_directory = {}, .tokenizer = plugins.byte.get()};
  auto mock = plugins.dataset("mock", "vocab_size: 64", context);
  auto train = mock->split(Split::train, 1000);
  CHECK(train->size() > int64_t{1} << 50);
  CHECK(mock->split(Split::valid, Dataset::kOneEpoch)->size() == 1024);

  std::map<std::pair<int32_t, int32_t>, double> pairs;
  std::map<int32_t, double> singles;
  std::vector<int32_t> tokens(512), targets(512), positions(512), again(512);
  Sample sample{tokens, targets, positions, {}};
  for (int64_t i = 0; i < 400; ++i) {
    train->get(i, sample);
    for (size_t t = 0; t < 512; ++t) {
      REQUIRE((tokens[t] >= 0 && tokens[t] < 64));
      if (t + 1 < 512) REQUIRE(targets[t] == tokens[t + 1]);
      ++pairs[{tokens[t], targets[t]}];
      ++singles[tokens[t]];
    }
  }
  double entropy = 0;  // of the next token given this one
  for (const auto& [pair, count] : pairs) entropy -= count * std::log(count / singles[pair.first]);
  entropy /= 400 * 512;
  CHECK(entropy < 1.23);  // 1.213 less what two successors in common save
  CHECK(entropy > 1.0);

  train->get(123456789, sample);
  again = tokens;
  plugins.dataset("mock", "vocab_size: 64", context)
      ->split(Split::train, 1)
      ->get(123456789, sample);
  CHECK(tokens == again);
  mock->split(Split::valid, 1)->get(123456789, sample);
  CHECK(tokens != again);
  context.seed = 4;
  plugins.dataset("mock", "vocab_size: 64", context)
      ->split(Split::train, 1)
      ->get(123456789, sample);
  CHECK(tokens != again);
  expect_error(ErrorClass::config, {"258", "257"},
               [&] { plugins.dataset("mock", "vocab_size: 258", context); });
}
