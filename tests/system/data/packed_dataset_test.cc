// Packs on disk: `mtrain data pack --output` writes them, the sft dataset trains on them.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "../cli/shell.h"
#include "built_plugins.h"
#include "data_files.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/data/dataset.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin_host.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

class PackedDatasets {
 public:
  PackedDatasets() : host_(built_plugins()) {
    TokenizerContext context;
    byte_ = host_.make<Tokenizer>("byte", Node::map(), context);
    wide_ = host_.make<Tokenizer>("byte", parse_yaml("extra_ids: 3"), context);
  }
  std::unique_ptr<Dataset> make(const ScratchFolder& scratch, const std::string& yaml,
                                int64_t seq_length = 16, uint64_t seed = 1, bool wide = false) {
    DatasetContext context{.seq_length = seq_length,
                           .seed = seed,
                           .base_directory = scratch.path(),
                           .tokenizer = wide ? wide_.get() : byte_.get(),
                           .log_summary = false};
    return host_.make<Dataset>("sft", parse_yaml(yaml), context);
  }

 private:
  PluginHost host_;
  std::unique_ptr<Tokenizer> byte_, wide_;
};

/// `count` records of different lengths, some longer than a sample of 16.
std::string records(int count, int first = 0) {
  std::string out;
  for (int i = first; i < first + count; ++i)
    out += cat("{\"prompt\": \"",
               std::string(static_cast<size_t>(1 + i % 7), static_cast<char>('a' + i % 26)),
               "\", \"completion\": \"",
               std::string(static_cast<size_t>(1 + i * 5 % 13), static_cast<char>('A' + i % 26)), i,
               "\"}\n");
  return out;
}

std::string samples(const SampleSource& source, size_t seq = 16) {
  std::string out;
  for (int64_t i = 0; i < source.size(); ++i) {
    std::vector<int32_t> tokens(seq), targets(seq), positions(seq);
    Sample sample{tokens, targets, positions, {}};
    source.get(i, sample);
    for (const auto* list : {&tokens, &targets, &positions, &sample.starts})
      for (int32_t value : *list) out += cat(value, ' ');
    out += '\n';
  }
  return out;
}

}  // namespace

TEST_CASE("packs from disk train as the same records packed in memory") {
  ScratchFolder scratch;
  PackedDatasets datasets;
  put(scratch / "x.jsonl", records(60));
  put(scratch / "v.jsonl", records(9, 100));
  for (const char* more :
       {"", " dataset.packed_length=12", " dataset.too_long=drop", " dataset.train_on=all"}) {
    const std::string words = more,
                      setting = words.empty() ? "" : words.substr(words.find('.') + 1);
    const std::string yaml = setting.empty() ? ""
                                             : cat(", ", setting.substr(0, setting.find('=')), ": ",
                                                   setting.substr(setting.find('=') + 1));
    CAPTURE(words);
    for (const char* file : {"x", "v"}) {
      auto done = cli_in(
          scratch.path(),
          cat("data pack ", file, ".jsonl -t byte --seq-length 16 --force -o ", file, words));
      REQUIRE_MESSAGE(done.status == 0, done.err);
    }
    for (uint64_t seed : {1u, 2u}) {
      auto memory = datasets.make(
          scratch, cat("{path: x.jsonl, valid_path: v.jsonl, packing: offline", yaml, "}"), 16,
          seed);
      auto disk = datasets.make(
          scratch, cat("{path: x, valid_path: v, packing: offline", yaml, "}"), 16, seed);
      for (Split which : {Split::train, Split::valid})
        for (int64_t count : {Dataset::kOneEpoch, int64_t{100}}) {
          const std::string wanted = samples(*memory->split(which, count));
          CHECK(samples(*disk->split(which, count)) == wanted);
        }
      CHECK(memory->identity() != disk->identity());
    }
  }
  // Shares are of packs: each is in one of them.
  auto shares = datasets.make(scratch, "{path: x, split: '80,20,0', train_on: all}");
  auto whole = datasets.make(scratch, "{path: x, split: '1', train_on: all}");
  CHECK(shares->split(Split::train, Dataset::kOneEpoch)->size() +
            shares->split(Split::valid, Dataset::kOneEpoch)->size() ==
        whole->split(Split::train, Dataset::kOneEpoch)->size());
  expect_error(ErrorClass::data, {"test split of x", "packs give it none"},
               [&] { shares->split(Split::test, 1); });
}

TEST_CASE("data pack counts packs that are shorter than samples by their own length") {
  ScratchFolder scratch;
  std::string five;  // each takes 4 places: "000", "a" and the end, less one
  for (int i = 0; i < 5; ++i) five += "{\"prompt\": \"000\", \"completion\": \"a\"}\n";
  put(scratch / "x.jsonl", five);
  const std::string words = "data pack x.jsonl -t byte --seq-length 16 dataset.packed_length=8";
  const std::string text = cli_in(scratch.path(), words).out;
  CHECK_MESSAGE(text.find("5 records in 3 packs of 8 tokens, up to 2 in one (no packing has "
                          "fewer than 3)\nsamples have 16 tokens\npositions filled: 41.7 %") !=
                    std::string::npos,
                text);
  const auto json = nlohmann::json::parse(cli_in(scratch.path(), words + " --json").out);
  CHECK(json["packed_length"] == 8);
  CHECK(json["packs"] == 3);
  CHECK(json["fewest_packs"] == 3);
}

TEST_CASE("the help for records that are too long names the setting that limits them") {
  ScratchFolder scratch;
  put(scratch / "r.yaml",
      "model: {type: llama, layers: 1, hidden_size: 16, heads: 2, ffn_hidden_size: 32, seq_length: "
      "16}\n"
      "tokenizer: byte\ndataset: {type: sft, path: x.jsonl, split: '1', packing: offline}\n"
      "train: {steps: 1}\nvalidation: {steps: 0}\n");
  const auto says = [&](const std::string& settings) {
    return cli_in(scratch.path(), "check --data r.yaml dataset.packed_length=" + settings).err;
  };
  const std::string three = "{\"prompt\": \"000\", \"completion\": \"a\"}\n",
                    ten = "{\"prompt\": \"000\", \"completion\": \"aaaaaaaaaa\"}\n";
  put(scratch / "x.jsonl", ten + three);
  std::string help = says("8");
  CHECK_MESSAGE(help.find("1 truncated to 9 tokens") != std::string::npos, help);
  CHECK_MESSAGE(help.find("help: raise dataset.packed_length, or drop long records with "
                          "dataset.too_long=drop\n") != std::string::npos,
                help);
  help = says("8 dataset.too_long=fail");
  CHECK_MESSAGE(help.find("raise dataset.packed_length, or set") != std::string::npos, help);
  put(scratch / "x.jsonl", ten);  // dropping it would leave nothing
  help = says("8");
  CHECK_MESSAGE(help.find("help: raise dataset.packed_length\n") != std::string::npos, help);
  put(scratch / "x.jsonl", ten + "{\"prompt\": \"00000000000000\", \"completion\": \"aaa\"}\n");
  help = says("16");
  CHECK_MESSAGE(help.find("help: raise model.seq_length and dataset.packed_length, or drop") !=
                    std::string::npos,
                help);
}

TEST_CASE("packs of other settings are refused by name") {
  ScratchFolder scratch;
  PackedDatasets datasets;
  put(scratch / "x.jsonl", records(20));
  auto done = cli_in(scratch.path(), "data pack x.jsonl -t byte --seq-length 16 --output x");
  REQUIRE_MESSAGE(done.status == 0, done.err);
  CHECK_MESSAGE(
      done.out.find("written to x: train with dataset=sft dataset.path=x") != std::string::npos,
      done.out);
  done = cli_in(scratch.path(),
                "data pack x.jsonl -t byte --output y 'dataset.columns={prompt: prompt}'");
  CHECK_MESSAGE(
      done.out.find("dataset.path=y 'dataset.columns={prompt: prompt}'\n") != std::string::npos,
      done.out, done.err);
  done = cli_in(scratch.path(), "data pack x.jsonl -t byte --dataset preference");
  CHECK_MESSAGE(done.status == 2, done.out, done.err);
  datasets.make(scratch, "path: x");
  expect_error(ErrorClass::config, {"x was packed", "another tokenizer", "3 extra"},
               [&] { datasets.make(scratch, "path: x", 16, 1, true); });
  expect_error(ErrorClass::config,
               {"x was packed for samples of 16 tokens", "model.seq_length is 32"},
               [&] { datasets.make(scratch, "path: x", 32); });
  expect_error(ErrorClass::config, {"train_on assistant", "train_on last"},
               [&] { datasets.make(scratch, "{path: x, train_on: last}"); });
  expect_error(ErrorClass::config, {"x was packed with template none", "(chat template llama2)"},
               [&] { datasets.make(scratch, "{path: x, chat_template: llama2}"); });
  done =
      cli_in(scratch.path(),
             "data pack x.jsonl -t byte --seq-length 16 --output z dataset.chat_template=chatml");
  REQUIRE_MESSAGE(done.status == 0, done.err);
  expect_error(ErrorClass::config, {"(chat template chatml)", "(chat template llama2)"},
               [&] { datasets.make(scratch, "{path: z, chat_template: llama2}"); });
  auto again = cli_in(scratch.path(), "data pack x.jsonl -t byte --seq-length 16 --output x");
  CHECK(again.status == 18);
  CHECK_MESSAGE(again.err.find("exists already") != std::string::npos, again.err);
  put(scratch / "x.jsonl", records(21));
  expect_error(ErrorClass::data, {"x.jsonl has changed", "data pack"},
               [&] { datasets.make(scratch, "path: x"); });
}

TEST_CASE("packs of segments from before their special tokens were recognized are refused") {
  ScratchFolder scratch;
  PackedDatasets datasets;
  put(scratch / "x.jsonl", R"({"segments": [{"text": "a", "label": 0}, {"text": "b", "label": 1}]})"
                           "\n");
  auto done = cli_in(scratch.path(), "data pack x.jsonl -t byte --seq-length 16 --output x");
  REQUIRE_MESSAGE(done.status == 0, done.err);
  datasets.make(scratch, "path: x");
  std::string manifest = read_file(scratch / "x.packed.json");
  manifest.replace(manifest.find(" with special tokens"), 20, "");
  put(scratch / "x.packed.json", manifest);
  expect_error(ErrorClass::config, {"packed from segments by an earlier version", "data pack"},
               [&] { datasets.make(scratch, "path: x"); });
}

TEST_CASE(
    "settings that packing has fixed are refused where they differ, and pass where they are equal "
    "or left out") {
  ScratchFolder scratch;
  PackedDatasets datasets;
  put(scratch / "x.jsonl", records(20));
  auto pack = [&](const std::string& words) {
    auto done = cli_in(scratch.path(),
                       "data pack x.jsonl -t byte --seq-length 16 --force --output x" + words);
    REQUIRE_MESSAGE(done.status == 0, done.err);
  };
  pack(" dataset.packed_length=12 dataset.too_long=drop");
  for (const char* fine : {"", ", packing: offline", ", packed_length: 12", ", too_long: drop",
                           ", packed_length: 12, too_long: drop"})
    datasets.make(scratch, cat("{path: x", fine, "}"));
  CHECK(datasets.make(scratch, "{path: x, packing: offline}")->identity() ==
        datasets.make(scratch, "{path: x}")->identity());
  CHECK(datasets.make(scratch, "{path: x.jsonl, packing: none}")->identity() ==
        datasets.make(scratch, "{path: x.jsonl}")->identity());
  CHECK(datasets.make(scratch, "{path: x.jsonl, packing: offline}")->identity() !=
        datasets.make(scratch, "{path: x.jsonl}")->identity());
  expect_error(ErrorClass::config, {"dataset.packing=none", "x has packs", "dataset.packing=auto"},
               [&] { datasets.make(scratch, "{path: x, packing: none}"); });
  expect_error(
      ErrorClass::config,
      {"dataset.packed_length is 8", "was packed with 12", "leave dataset.packed_length out"},
      [&] { datasets.make(scratch, "{path: x, packed_length: 8}"); });
  expect_error(ErrorClass::config, {"dataset.too_long is fail", "was packed with drop"},
               [&] { datasets.make(scratch, "{path: x, too_long: fail}"); });
  expect_error(ErrorClass::config, {"dataset.prompt is {instruction}", "was packed with"},
               [&] { datasets.make(scratch, "{path: x, prompt: '{instruction}'}"); });
  pack("");
  datasets.make(scratch, "{path: x, packed_length: 16}");  // packs were as long as samples
  datasets.make(scratch, "{path: x, format: prompt_completion}");
  expect_error(ErrorClass::config,
               {"dataset.format is alpaca", "was packed with prompt_completion"},
               [&] { datasets.make(scratch, "{path: x, format: alpaca}"); });
  // Packs of a version that did not record them.
  auto manifest = nlohmann::json::parse(read_file(scratch / "x.packed.json"));
  REQUIRE(manifest.erase("settings") == 1);
  put(scratch / "x.packed.json", manifest.dump());
  datasets.make(scratch, "path: x");
  expect_error(ErrorClass::config, {"dataset.packed_length is 16", "does not record", "data pack"},
               [&] { datasets.make(scratch, "{path: x, packed_length: 16}"); });
  manifest["settings"] = 3;
  put(scratch / "x.packed.json", manifest.dump());
  expect_error(ErrorClass::data, {"x.packed.json", "settings is of another type"},
               [&] { datasets.make(scratch, "path: x"); });
}

TEST_CASE(
    "packing that is killed anywhere leaves nothing that is trained on, or all, and is simply run "
    "again") {
  PackedDatasets datasets;
  std::string wanted;
  {
    ScratchFolder scratch;
    put(scratch / "x.jsonl", records(20));
    wanted = samples(*datasets.make(scratch, "{path: x.jsonl, packing: offline, split: '1'}")
                          ->split(Split::train, -1));
  }
  int killed = 0;
  for (bool force : {false, true})
    for (const char* site :
         {"data.bin.open", "data.bin.write", "data.bin.fsync", "data.bin.rename", "data.idx.open",
          "data.idx.fsync", "data.idx.rename", "data.idx.dirsync", "packed.unlink.dirsync",
          "packed.fsync", "packed.rename"})
      for (int visit : {1, 2}) {
        CAPTURE(site);
        CAPTURE(visit);
        CAPTURE(force);
        ScratchFolder scratch;
        const std::string words =
            cat("data pack x.jsonl -t byte --seq-length 16 -o x", force ? " --force" : "");
        std::string old;
        if (force) {  // other packs are there
          put(scratch / "x.jsonl", records(7, 50));
          REQUIRE(cli_in(scratch.path(), words).status == 0);
        }
        put(scratch / "x.jsonl", records(20));
        const Outcome stopped = cli_in(scratch.path(), words, "/nowhere",
                                       {cat("MTRAIN_FAULT=", site, ":", visit, ":kill")});
        if (stopped.status == 0) continue;  // not so many visits
        ++killed;
        auto now = [&] {
          return samples(*datasets.make(scratch, "{path: x, split: '1'}")->split(Split::train, -1));
        };
        if (!fs::exists(scratch / "x.idx"))
          CHECK_THROWS_AS(now(), Error);
        else if (force &&
                 read_file(scratch / "x.packed.json").find("\"records\": 7,") != std::string::npos)
          expect_error(ErrorClass::data, {"x.jsonl has changed"}, now);  // the old ones, whole
        else
          CHECK(now() == wanted);
        if (!fs::exists(scratch / "x.idx") || force) {
          const Outcome second = cli_in(scratch.path(), words);
          REQUIRE_MESSAGE(second.status == 0, second.err);
        }
        CHECK(now() == wanted);
      }
  CHECK(killed >= 30);
}
