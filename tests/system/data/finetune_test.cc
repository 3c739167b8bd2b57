// The datasets of fine-tuning as a run loads them, and `mtrain data show` and `pack` of their
// records.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "../cli/shell.h"
#include "built_plugins.h"
#include "data_files.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/data/dataset.h"
#include "mtrain/data/loader.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin_host.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

class Datasets {
 public:
  Datasets() : host_(built_plugins()) {
    TokenizerContext context;
    byte_ = host_.make<Tokenizer>("byte", Node::map(), context);
  }
  std::unique_ptr<Dataset> make(const ScratchFolder& scratch, const std::string& yaml,
                                int64_t seq_length = 16, uint64_t seed = 1,
                                const char* type = "sft") {
    DatasetContext context{.seq_length = seq_length,
                           .seed = seed,
                           .base_directory = scratch.path(),
                           .tokenizer = byte_.get(),
                           .log_summary = false};
    Node settings = parse_yaml(yaml);
    if (!settings.get("split") && !settings.get("valid_path"))
      settings.set("split", Node::string("1"));
    return host_.make<Dataset>(type, settings, context);
  }

 private:
  PluginHost host_;
  std::unique_ptr<Tokenizer> byte_;
};

/// `count` records whose answer is one letter each: "0…" -> "a", and so on.
std::string letters(int count, int prompt = 3) {
  std::string out;
  for (int i = 0; i < count; ++i)
    out += cat("{\"prompt\": \"", std::string(static_cast<size_t>(prompt + i % 3), '0'),
               "\", \"completion\": \"", static_cast<char>('a' + i), "\"}\n");
  return out;
}

/// The letters that are trained on, in the order of samples.
std::string answers(const SampleSource& source, int64_t seq, int64_t count) {
  Loader loader(
      source,
      {.seq_length = seq, .micro_batch_size = 1, .num_micro_batches = count, .prefetch = false});
  std::string out;
  for (const MicroBatch& batch : loader.next())
    for (int32_t target : batch.targets)
      if (target >= 'a' && target <= 'z') out += static_cast<char>(target);
  return out;
}

}  // namespace

TEST_CASE("a run whose validation has no data is refused before its first step") {
  ScratchFolder scratch;
  put(scratch / "x.jsonl", letters(20));
  put(scratch / "r.yaml",
      "model: {type: llama, layers: 1, hidden_size: 16, heads: 2, ffn_hidden_size: 32, seq_length: "
      "16}\n"
      "tokenizer: byte\ndataset: {type: sft, path: x.jsonl, split: '1'}\ntrain: {steps: 3}\n"
      "checkpoint: {interval: 1}\nlogger: {tensorboard: false}\n");
  Outcome refused = cli_in(scratch.path(), "train r.yaml run.dir=out");
  CHECK(refused.status == 11);
  CHECK_MESSAGE(has(refused.err, "the valid split of"), refused.err);
  CHECK_FALSE(has(refused.out, "step 1/3"));
  Outcome without = cli_in(scratch.path(), "train r.yaml run.dir=out validation.steps=0");
  CHECK_MESSAGE(without.status == 0, without.err);
}

TEST_CASE("sft trains on answers alone, each epoch in an order of its own, packed or not") {
  ScratchFolder scratch;
  Datasets datasets;
  put(scratch / "x.jsonl", letters(20));
  auto plain = datasets.make(scratch, "path: x.jsonl");
  auto source = plain->split(Split::train, 40);
  CHECK(source->size() == 40);
  const std::string both = answers(*source, 16, 40), first = both.substr(0, 20),
                    second = both.substr(20);
  CHECK(std::set<char>(first.begin(), first.end()).size() == 20);
  CHECK(std::set<char>(second.begin(), second.end()).size() == 20);
  CHECK(first != second);
  CHECK(answers(*datasets.make(scratch, "path: x.jsonl", 16, 2)->split(Split::train, 20), 16, 20) !=
        first);
  CHECK(answers(*datasets.make(scratch, "path: x.jsonl")->split(Split::train, 20), 16, 20) ==
        first);

  auto packed = datasets.make(scratch, "{path: x.jsonl, packing: offline}");
  auto packs = packed->split(Split::train, Dataset::kOneEpoch);
  CHECK(packs->size() < 10);  // 20 of 4 to 6 places in samples of 16
  const std::string all = answers(*packs, 16, packs->size());
  CHECK(all.size() == 20);
  CHECK(std::set<char>(all.begin(), all.end()).size() == 20);
  CHECK(datasets.make(scratch, "{path: x.jsonl, packing: offline, packed_length: 7}")
            ->split(Split::train, Dataset::kOneEpoch)
            ->size() == 20);  // no two of them fit 7 places
}

TEST_CASE(
    "sft divides records among the splits, the same whatever the seed, or reads a file for each") {
  ScratchFolder scratch;
  Datasets datasets;
  put(scratch / "x.jsonl", letters(20));
  put(scratch / "v.jsonl", "{\"prompt\": \"q\", \"completion\": \"z\"}");
  std::string valid;
  for (uint64_t seed : {1u, 2u}) {
    auto data = datasets.make(scratch, "{path: x.jsonl, split: '80,20,0'}", 16, seed);
    std::string train = answers(*data->split(Split::train, Dataset::kOneEpoch), 16, 16);
    std::string held = answers(*data->split(Split::valid, Dataset::kOneEpoch), 16, 4);
    std::string all = train + held;
    CHECK(std::set<char>(all.begin(), all.end()).size() == 20);
    if (!valid.empty()) CHECK(held == valid);
    valid = held;
    expect_error(ErrorClass::data, {"test split", "80,20,0", "dataset.test_path"},
                 [&] { data->split(Split::test, 1); });
  }
  CHECK(valid != "qrst");  // not simply the last
  // A share above 0 has a record, also where rounding gives it none.
  put(scratch / "few.jsonl", letters(8));
  auto few = datasets.make(scratch, "{path: few.jsonl, split: '969,30,1'}");
  for (auto [which, size] : {std::pair{Split::train, 6}, {Split::valid, 1}, {Split::test, 1}})
    CHECK(few->split(which, Dataset::kOneEpoch)->size() == size);
  auto own = datasets.make(scratch, "{path: x.jsonl, valid_path: v.jsonl}");
  CHECK(own->split(Split::train, Dataset::kOneEpoch)->size() == 20);
  CHECK(answers(*own->split(Split::valid, 3), 16, 3) == "zzz");
  expect_error(ErrorClass::config, {"dataset.test_path"}, [&] { own->split(Split::test, 1); });
}

TEST_CASE("what does not fit or has no targets is truncated or left out, and reported") {
  ScratchFolder scratch;
  Datasets datasets;
  put(scratch / "x.jsonl", letters(3) +
                               R"({"prompt": "0", "completion": "zyxwvutsrqponmlkjihg"})"
                               "\n" +
                               R"({"prompt": "00000000000000000000000000000", "completion": "y"})"
                               "\n");
  auto shown = cli_in(scratch.path(), "data show x.jsonl -t byte --seq-length 16 -d 0:9");
  CHECK(shown.status == 0);
  CHECK_MESSAGE(
      has(shown.out,
          "x.jsonl (prompt_completion): 4 of 5 records, 22 of 35 tokens are trained on; "
          "1 truncated to 17 tokens, without 5 of the tokens that should be trained on (first: "
          "x.jsonl:4); 1 left out because all tokens to train on come after their first "
          "17 tokens (first: x.jsonl:5)\n"),
      shown.out);
  CHECK(has(shown.out, "x.jsonl:1, 5 tokens, 2 trained on:\n0|0|0|[a]|[<|endoftext|>]\n"));
  shown = cli_in(scratch.path(), "data show x.jsonl -t byte --seq-length 16 -d 0 --ids");
  CHECK(has(shown.out, "\n0=48|0=48|0=48|[a=97]|[<|endoftext|>=256]\n"));
  // Settings are read as a recipe's: commas belong to the text.
  shown = cli_in(scratch.path(),
                 "data show x.jsonl -t byte -d 0 'dataset.columns={prompt: prompt}' "
                 "dataset.template_name=a,b,c");
  CHECK_MESSAGE(shown.status == 0, shown.err);
  shown = cli_in(scratch.path(), "data show x.jsonl -t byte -d 0 dataset.chat_template=vicuna");
  CHECK_MESSAGE(
      has(shown.err, "dataset.chat_template has no effect on x.jsonl (prompt_completion)"),
      shown.err);
  auto count = [&](const char* more) {
    return datasets.make(scratch, cat("{path: x.jsonl", more, "}"))
        ->split(Split::train, Dataset::kOneEpoch)
        ->size();
  };
  CHECK(count("") == 4);
  CHECK(count(", too_long: drop") == 3);
  expect_error(ErrorClass::data, {"x.jsonl:4", "22 tokens", "takes 17", "too_long"},
               [&] { count(", too_long: fail"); });
  put(scratch / "x.jsonl", letters(3) + "{\"prompt\": 1, \"completion\": \"b\"}\n{}\n");
  expect_error(ErrorClass::data, {"x.jsonl:4", "number in the field 'prompt'"},
               [&] { count(", format: prompt_completion"); });
  CHECK(count(", format: prompt_completion, on_bad: skip") == 3);
  expect_error(ErrorClass::data, {"x.jsonl:5", "more than 1"},
               [&] { count(", format: prompt_completion, on_bad: skip, max_bad: 1"); });
}

TEST_CASE(
    "check --data and training warn of answers that a sample's length truncates, and name the "
    "first "
    "record") {
  ScratchFolder scratch;
  auto record = [](int prompt, int answer) {
    return cat("{\"prompt\": \"", std::string(static_cast<size_t>(prompt), '0'),
               "\", \"completion\": \"", std::string(static_cast<size_t>(answer), 'a'), "\"}\n");
  };
  put(scratch / "r.yaml",
      "model: {type: llama, layers: 1, hidden_size: 16, heads: 2, ffn_hidden_size: 32, seq_length: "
      "16}\n"
      "tokenizer: byte\ndataset: {type: sft, path: x.jsonl, split: '1'}\ntrain: {steps: "
      "1}\nvalidation: {steps: 0}\n"
      "logger: {tensorboard: false}\n");
  // A text that is trained on to its end, a prompt that fills the sample, and an answer whose
  // last 4 of 10 letters and end token do not fit.
  put(scratch / "x.jsonl", record(3, 9) + record(40, 2) + record(11, 10));
  for (const char* command : {"check --data r.yaml", "train r.yaml -q run.dir=out"}) {
    CAPTURE(command);
    Outcome warned = cli_in(scratch.path(), command);
    CHECK(warned.status == 0);
    CHECK_MESSAGE(has(warned.err, "warning"), warned.err);
    CHECK_MESSAGE(
        has(warned.err,
            "1 truncated to 17 tokens, without 5 of the tokens that should be trained on (first: "),
        warned.err);
    CHECK_MESSAGE(has(warned.err, "x.jsonl:3)"), warned.err);
    CHECK_MESSAGE(
        has(warned.err,
            "1 left out because all tokens to train on come after their first 17 tokens (first: "),
        warned.err);
    CHECK_MESSAGE(has(warned.err, "x.jsonl:2)"), warned.err);
    CHECK_MESSAGE(has(warned.err, "model.seq_length"), warned.err);
  }
  // Whole answers, or truncation of what is not trained on: no warning.
  put(scratch / "x.jsonl", record(3, 9) + record(4, 8));
  CHECK_FALSE(has(cli_in(scratch.path(), "check --data r.yaml").err, "warning"));
  put(scratch / "x.jsonl",
      R"({"segments": [{"text": "ab", "label": true}, {"text": "00000000000000000000", "label": false}]})");
  Outcome question = cli_in(scratch.path(), "check --data r.yaml");
  CHECK_MESSAGE(has(question.err, "1 truncated to 17 tokens\n"), question.err);
  CHECK_FALSE(has(question.err, "warning"));
  put(scratch / "x.jsonl", record(40, 2));
  Outcome none = cli_in(scratch.path(), "check --data r.yaml");
  CHECK(none.status == 11);
  CHECK_MESSAGE(has(none.err, "nothing to train on is left"), none.err);
  CHECK_MESSAGE(has(none.err, "help: raise model.seq_length\n"), none.err);
  CHECK_FALSE(has(none.err, "too_long=drop"));  // which leaves nothing, either
  none = cli_in(scratch.path(), "check --data r.yaml dataset.too_long=drop");
  CHECK_MESSAGE(has(none.err, "help: raise model.seq_length\n"), none.err);
}

TEST_CASE("sft says what is wrong and what to do") {
  ScratchFolder scratch;
  Datasets datasets;
  put(scratch / "x.jsonl", letters(3));
  put(scratch / "chat.jsonl",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})");
  put(scratch / "mute.jsonl", R"({"segments": [{"text": "abc", "label": false}]})");
  struct Fault {
    const char* yaml;
    ErrorClass error_class;
    std::vector<std::string> says;
  };
  for (const Fault& fault :
       {Fault{"{}", ErrorClass::config, {"dataset.path is not set"}},
        {"path: nowhere.jsonl", ErrorClass::io, {"nowhere.jsonl"}},
        {"path: chat.jsonl",
         ErrorClass::config,
         {"chat.jsonl:1", "no chat template", "dataset.chat_template", "dataset.template_path"}},
        {"{path: chat.jsonl, chat_template: chat}",
         ErrorClass::config,
         {"chat_template", "chatml"}},
        {"{path: chat.jsonl, chat_template: chatml, template_path: t.jinja}",
         ErrorClass::config,
         {"both"}},
        {"path: mute.jsonl",
         ErrorClass::data,
         {"nothing to train on is left", "mute.jsonl", "an answer"}},
        {"{path: x.jsonl, columns: {promt: x}}",
         ErrorClass::config,
         {"promt", "did you mean 'prompt'"}},
        {"{path: x.jsonl, columns: [a]}", ErrorClass::config, {"dataset.columns", "not a map"}},
        {"{path: x.jsonl, packed_length: 99}", ErrorClass::config, {"99", "model.seq_length 16"}},
        {"{path: x.jsonl, split: abc}", ErrorClass::config, {"'abc' is not a share"}},
        {"{path: x.jsonl, date: soon}", ErrorClass::config, {"dataset.date"}},
        {"{path: x.jsonl, train_on: nobody}", ErrorClass::config, {"train_on", "assistant"}}}) {
    CAPTURE(fault.yaml);
    for (const auto& says : fault.says)
      expect_error(fault.error_class, {says}, [&] { datasets.make(scratch, fault.yaml); });
  }
  // A template that comes with mtrain makes the conversation readable; bytes spell its marks, which
  // is warned about.
  CHECK(datasets.make(scratch, "{path: chat.jsonl, chat_template: llama3, split: '1'}", 128)
            ->split(Split::train, 1)
            ->size() == 1);
  auto shown = cli_in(scratch.path(), "data show chat.jsonl -t byte dataset.chat_template=chatml");
  CHECK_MESSAGE(has(shown.err,
                    "<|im_end|>, <|im_start|>, which the tokenizer does not have as single tokens"),
                shown.err);
  shown = cli_in(scratch.path(), "data show chat.jsonl -t byte dataset.chat_template=vicuna");
  CHECK_MESSAGE(has(shown.out, "[ ]|[b]|[<|endoftext|>]"), shown.out);
  CHECK_FALSE(has(shown.err, "as single tokens"));
}

TEST_CASE("data show and data pack check the rules between settings, as training does") {
  ScratchFolder scratch;
  put(scratch / "x.jsonl", letters(3));
  put(scratch / "a.jsonl", R"({"instruction": "a", "output": "b"})"
                           "\n");
  put(scratch / "chat.jsonl",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"
      "\n");
  struct Row {
    const char *file, *settings;
    std::vector<std::string> says;
  };
  const std::string argument = "command line: dataset.";
  for (const auto& row :
       {Row{"x.jsonl",
            "dataset.packing=offline dataset.packed_length=32",
            {"error[rule packed-length] dataset.packed_length: 32 tokens do not fit in a sample of "
             "16",
             argument, "help: dataset.packed_length=16"}},
        {"chat.jsonl",
         "dataset.format=openai",
         {"error[rule chat-template] dataset.chat_template: openai records are conversations, but "
          "the tokenizer byte has no chat template"}},
        {"chat.jsonl",
         "dataset.chat_template=chatml dataset.template_path=chatml.jinja",
         {"error[rule one-chat-template] dataset.template_path", argument}}})
    for (const char* command : {"data show ", "data pack "}) {
      auto refused =
          cli_in(scratch.path(), cat(command, row.file, " -t byte --seq-length 16 ", row.settings));
      CHECK(refused.status == 10);
      for (const auto& part : row.says) CHECK_MESSAGE(has(refused.err, part), refused.err);
      CHECK_MESSAGE(has(refused.err, "1 error"), refused.err);
    }
  // Settings without an effect are warned of; the records are shown.
  for (const auto& row :
       {Row{"x.jsonl",
            "dataset.packing=none dataset.packed_length=8",
            {"warning[rule packed-length-packing] dataset.packed_length: 8 has no effect with "
             "dataset.packing=none"}},
        {"x.jsonl",
         "dataset.packed_length=8",
         {"dataset.packed_length has no effect on x.jsonl", "dataset.packing=offline"}},
        {"a.jsonl",
         "dataset.chat_template=vicuna 'dataset.prompt=\"{instruction}\"'",
         {"warning[rule prompt-template] dataset.prompt"}},
        {"x.jsonl",
         "dataset.format=prompt_completion 'dataset.prompt=\"{instruction}\"'",
         {"warning[rule prompt-format] dataset.prompt"}}}) {
    auto warned =
        cli_in(scratch.path(), cat("data show ", row.file, " -t byte -d 0 ", row.settings));
    CHECK_MESSAGE(warned.status == 0, warned.err);
    for (const auto& part : row.says) CHECK_MESSAGE(has(warned.err, part), warned.err);
    CHECK(has(warned.out, cat(row.file, ":1")));
  }
  // Rules about settings that these commands do not read say nothing, nor does packing, which
  // `data pack` does in any case.
  for (const char* fine :
       {"data show x.jsonl -t byte",
        "data show x.jsonl -t byte --dataset preference 'dataset.columns={chosen: completion, "
        "rejected: prompt}'",
        "data pack x.jsonl -t byte dataset.packed_length=8"}) {
    auto quiet = cli_in(scratch.path(), fine);
    CHECK_MESSAGE(!has(quiet.err, "rule "), quiet.err);
  }
}

TEST_CASE("the identity of sft follows records, encoding and order") {
  ScratchFolder scratch;
  Datasets datasets;
  put(scratch / "x.jsonl", letters(5));
  put(scratch / "t.jinja", "{{ messages[0].content }}");
  put(scratch / "u.jinja", "{{ messages[0].content }}!");
  auto identity = [&](const char* yaml, int64_t seq = 16, uint64_t seed = 1) {
    return datasets.make(scratch, yaml, seq, seed)->identity();
  };
  std::set<std::string> seen = {identity("path: x.jsonl")};
  CHECK(nlohmann::json::parse(*seen.begin())["dataset"] == "sft");
  CHECK(identity("{path: x.jsonl, split: '1'}") == *seen.begin());
  CHECK(identity("{path: x.jsonl, columns: {prompt: prompt}}") == *seen.begin());
  for (const char* yaml :
       {"{path: x.jsonl, split: '9,1,0'}", "{path: x.jsonl, train_on: all}",
        "{path: x.jsonl, packing: offline}", "{path: x.jsonl, template_path: t.jinja}",
        "{path: x.jsonl, template_path: u.jinja}", "{path: x.jsonl, date: '2025-01-01'}",
        "{path: x.jsonl, too_long: drop}", "{path: x.jsonl, valid_path: x.jsonl}"})
    CHECK_MESSAGE(seen.insert(identity(yaml)).second, yaml);
  CHECK(seen.insert(identity("path: x.jsonl", 17)).second);
  CHECK(seen.insert(identity("path: x.jsonl", 16, 2)).second);
  put(scratch / "x.jsonl", letters(6));
  CHECK(seen.insert(identity("path: x.jsonl")).second);
}

TEST_CASE("pack reports how well records fill samples") {
  ScratchFolder scratch;
  put(scratch / "x.jsonl", letters(20));
  auto json = nlohmann::json::parse(
      cli_in(scratch.path(), "data pack x.jsonl -t byte --seq-length 16 --json").out);
  CHECK(json["records"] == 20);
  CHECK(json["tokens"] == 119);
  for (const char* key : {"trained_tokens", "truncated_trained_tokens", "truncated_before_trained"})
    CHECK_MESSAGE(json.contains(key), key);
  CHECK(json["positions"] == 99);  // 7 of 4, 7 of 5, 6 of 6 places
  CHECK(json["packs"] == 7);       // three of 6+6+4, two of 5+5+5, 5+4+4, 4+4
  CHECK(json["fewest_packs"] == 7);
  CHECK(json["efficiency"].get<double>() == doctest::Approx(99.0 / (7 * 16)));
  CHECK(json["efficiency_unpacked"].get<double>() == doctest::Approx(99.0 / (20 * 16)));
  auto text = cli_in(scratch.path(), "data pack x.jsonl -t byte --seq-length 16");
  CHECK(has(text.out,
            "20 records in 7 packs of 16 tokens, up to 3 in one (no packing has fewer than 7)"));
  CHECK(has(text.out, "positions filled: 88.4 %, without packing 30.9 %"));
}

TEST_CASE(
    "preferences are read, laid out and shown, and no model learns them without an objective") {
  ScratchFolder scratch;
  Datasets datasets;
  put(scratch / "p.jsonl",
      "{\"prompt\": \"00\", \"chosen\": \"ab\", \"rejected\": \"c\"}\n"
      "{\"prompt\": \"0\", \"chosen\": \"this one is far too long\", \"rejected\": \"d\"}\n");
  auto data = datasets.make(scratch, "path: p.jsonl", 16, 1, "preference");
  CHECK(data->objective() != Dataset::kNextToken);
  auto source = data->split(Split::train, Dataset::kOneEpoch);
  REQUIRE(source->size() == 1);
  std::vector<int32_t> tokens(16), targets(16), positions(16);
  Sample sample{tokens, targets, positions, {}};
  source->get(0, sample);
  CHECK(sample.starts == std::vector<int32_t>{0, 4, 7});
  CHECK(std::vector<int32_t>(targets.begin(), targets.begin() + 8) ==
        std::vector<int32_t>{-1, 'a', 'b', 256, -1, 'c', 256, -1});
  auto shown =
      cli_in(scratch.path(), "data show p.jsonl -t byte --dataset preference --seq-length 16");
  CHECK(has(shown.out,
            "p.jsonl (pairs): 1 of 2 records; 1 left out for having more than 16 tokens\n"
            "p.jsonl:1, chosen, 5 tokens, 3 trained on:\n0|0|[a]|[b]|[<|endoftext|>]\n"
            "p.jsonl:1, rejected, 4 tokens, 2 trained on:\n0|0|[c]|[<|endoftext|>]\n"));
  shown = cli_in(scratch.path(),
                 "data show p.jsonl -t byte --dataset preference dataset.chat_template=vicuna");
  CHECK_MESSAGE(has(shown.err, "dataset.chat_template has no effect on p.jsonl (pairs)"),
                shown.err);
  put(scratch / "k.jsonl",
      "{\"prompt\": \"0\", \"completion\": \"a\", \"label\": true}\n{\"prompt\": \"0\", "
      "\"completion\": \"b\", \"label\": "
      "false}\n");
  shown = cli_in(scratch.path(), "data show k.jsonl -t byte --dataset preference");
  CHECK(has(shown.out,
            "k.jsonl (labels): 2 of 2 records, 1 of them good\nk.jsonl:1, good, 3 tokens, 2 "
            "trained on:\n0|[a]|[<|endoftext|>]\n"));
  put(scratch / "r.yaml",
      "model: {type: llama, layers: 1, hidden_size: 16, heads: 2, ffn_hidden_size: 16, seq_length: "
      "16}\n"
      "dataset: {type: preference, path: p.jsonl}\ntrain: {steps: 1}\n");
  for (const char* command : {"r.yaml run.dir=r", "check r.yaml --data"}) {
    auto refused = cli_in(scratch.path(), command);
    CHECK(refused.status == 10);
    CHECK_MESSAGE(has(refused.err,
                      "preference has samples for the objective 'preferences between answers', "
                      "but llama learns the objective 'next token'"),
                  refused.err);
    CHECK_MESSAGE(has(refused.err, "objective=dpo"), refused.err);
  }
}

TEST_CASE(
    "the loss depends neither on padding nor on how records are packed, and a run goes on "
    "exactly") {
  ScratchFolder scratch;
  put(scratch / "x.jsonl", letters(20));
  put(scratch / "r.yaml",
      "model: {type: llama, layers: 2, hidden_size: 32, heads: 2, ffn_hidden_size: 64, seq_length: "
      "32}\n"
      "dataset: {type: sft, path: x.jsonl, split: '1'}\nvalidation: {steps: 0}\n"
      "train: {steps: 6, micro_batch_size: 4, global_batch_size: 20}\n"
      "checkpoint: {interval: 3}\nscheduler: {type: constant}\nmixed_precision: {dtype: "
      "fp32}\noptimizer: adamw\ntokenizer: "
      "byte\n");
  auto losses = [&](const std::string& words) {
    auto done = cli_in(scratch.path(), cat("r.yaml -q ", words));
    REQUIRE_MESSAGE(done.status == 0, done.err);
    std::string folder = words.substr(words.find("run.dir=") + 8);
    std::vector<double> out;
    std::istringstream lines(
        read_file(scratch / folder.substr(0, folder.find(' ')) / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (auto json = nlohmann::json::parse(line); json.contains("loss"))
        out.push_back(json["loss"]);
    return out;
  };
  auto whole = losses("run.dir=a");
  REQUIRE(whole.size() == 6);
  // A step takes the whole epoch whatever the order and the layout: 20 samples padded to 32 or 24
  // places, or packs of all records.
  auto same = [&](const std::vector<double>& other) {
    REQUIRE(other.size() == whole.size());
    for (size_t i = 0; i < whole.size(); ++i)
      CHECK(other[i] == doctest::Approx(whole[i]).epsilon(1e-4));
  };
  same(losses("run.dir=b model.seq_length=24"));
  same(losses(
      "run.dir=c dataset.packing=offline train.micro_batch_size=1 train.global_batch_size=4"));
  same(losses("run.dir=d dist.nproc=2 train.micro_batch_size=5"));
  losses("run.dir=e train.steps=3");
  auto rest = losses("run.dir=e");
  CHECK(std::vector<double>(rest.end() - 3, rest.end()) ==
        std::vector<double>(whole.begin() + 3, whole.end()));
}
