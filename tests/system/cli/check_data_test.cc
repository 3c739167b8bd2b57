// check --data: what a recipe reads is opened, and each fault is reported at its setting.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "shell.h"
#include "small_tokenizer.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

std::string recipe(const std::string& dataset, const std::string& more = "") {
  return quant_recipe(
      "type: llama, layers: 1, hidden_size: 16, heads: 2, ffn_hidden_size: 32, seq_length: 8",
      "train: {steps: 3}\n" + more, dataset);
}

}  // namespace

TEST_CASE("check --data opens tokenizer, data and template; check alone opens nothing") {
  Scratch scratch("mtrain-check-data");
  std::string text;
  for (int i = 0; i < 40; ++i) text += "{\"text\": \"some words of a text\"}\n";
  scratch.write("x.jsonl", text);
  REQUIRE(cli_in(scratch.path(), "data prepare -i x.jsonl -o x -t byte --append-eod").status == 0);
  scratch.write("good.yaml", recipe("{type: gpt, path: x, split: '90,10,0'}"));
  Outcome good = cli_in(scratch.path(), "check good.yaml --data");
  CHECK_MESSAGE(good.status == 0, good.err);
  CHECK(has(good.out, "tokenizer byte: 257 ids"));
  CHECK(has(good.out, "train data of gpt"));
  CHECK(has(good.out, "valid data of gpt"));
  CHECK_FALSE(std::filesystem::exists(scratch / "runs"));

  struct Faulty {
    const char *recipe, *path;
  };
  scratch.write("path.yaml", recipe("{type: gpt, path: nowhere}"));
  scratch.write("split.yaml", recipe("{type: gpt, path: x, split: '100,0,0'}",
                                     "validation: {interval: 1, steps: 1}\n"));
  scratch.write("at_end.yaml", recipe("{type: gpt, path: x, split: '100,0,0'}",
                                      "validation: {interval: 0, steps: 1}\n"));
  scratch.write("tokenizer.yaml", recipe("mock", "tokenizer: {type: hf, path: absent}\n"));
  scratch.write("chat.jsonl",
                "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                "\"assistant\", \"content\": \"b\"}]}\n");
  scratch.write("bad.jinja", "{% for m in messages %}");
  scratch.write("template.yaml", recipe("{type: sft, path: chat.jsonl, template_path: bad.jinja}"));
  for (const Faulty& row :
       {Faulty{"path.yaml", "dataset.path"}, Faulty{"split.yaml", "dataset."},
        Faulty{"at_end.yaml", "dataset."}, Faulty{"tokenizer.yaml", "tokenizer.path"},
        Faulty{"template.yaml", "dataset.template_path"}}) {
    CAPTURE(std::string(row.recipe));
    Outcome alone = cli_in(scratch.path(), std::string("check ") + row.recipe);
    CHECK_MESSAGE(alone.status == 0, alone.err);
    Outcome opened = cli_in(scratch.path(), std::string("check --data ") + row.recipe);
    CHECK(opened.status != 0);
    CHECK_MESSAGE(has(opened.err, row.path), opened.err);
    CHECK_MESSAGE(has(opened.err, std::string(row.recipe) + ":"), opened.err);
    auto json = nlohmann::json::parse(
        cli_in(scratch.path(), std::string("check --data --json ") + row.recipe).out);
    CHECK(json.at("errors") == 1);
    CHECK(json.at("diagnostics").at(0).at("path").get<std::string>().starts_with(row.path));
  }
  // A run whose validation has no steps reads no validation data.
  Outcome without = cli_in(scratch.path(), "check --data at_end.yaml validation.steps=0");
  CHECK_MESSAGE(without.status == 0, without.err);
  CHECK_MESSAGE(has(without.out, "no validation data is read: validation.steps is 0"), without.out);
}

TEST_CASE(
    "check --data refuses a tokenizer with more ids than model.vocab_size, and says how many rows "
    "have no id") {
  Scratch scratch("mtrain-check-vocabulary");
  scratch.write("r.yaml", recipe("mock"));
  auto check = [&](int rows) {
    return cli_in(scratch.path(), "check --data r.yaml model.vocab_size=" + std::to_string(rows));
  };
  Outcome fewer = check(256);
  CHECK(fewer.status == 10);
  CHECK_MESSAGE(
      has(fewer.err,
          "model.vocab_size (256) is smaller than the vocabulary of tokenizer 'byte' (257)"),
      fewer.err);
  Outcome same = check(257);
  CHECK(same.status == 0);
  CHECK_FALSE(has(same.err, "model.vocab_size"));
  Outcome padded = check(384);
  CHECK_MESSAGE(has(padded.err,
                    "model.vocab_size is 384 (command line, argument 4), and tokenizer 'byte' has "
                    "257 ids: the last 127 rows belong to no token"),
                padded.err);
  CHECK_FALSE(has(padded.err, "warning"));
  Outcome foreign = check(386);
  CHECK(foreign.status == 0);
  CHECK_MESSAGE(has(foreign.err, "warning"), foreign.err);
  CHECK_MESSAGE(has(foreign.err,
                    "model.vocab_size is 386 (command line, argument 4), and tokenizer 'byte' has "
                    "257 ids: 129 rows belong to no token"),
                foreign.err);
}

TEST_CASE("check --data says whose samples it counts, and reports another tokenizer in one line") {
  Scratch scratch("mtrain-check-lines");
  std::string text;
  for (int i = 0; i < 40; ++i) text += "{\"text\": \"some words of a text\"}\n";
  scratch.write("x.jsonl", text);
  REQUIRE(cli_in(scratch.path(), "data prepare -i x.jsonl -o x -t byte --append-eod").status == 0);
  scratch.write("r.yaml",
                recipe("{type: gpt, path: x, split: '90,10,0'}", "validation: {steps: 5}\n"));
  Outcome good = cli_in(scratch.path(), "check --data r.yaml train.global_batch_size=2");
  CHECK_MESSAGE(has(good.out, "train data of gpt: the run reads 6 samples of 8 tokens\n"),
                good.out);
  CHECK_MESSAGE(has(good.out, "valid data of gpt: a validation reads 10 samples of 8 tokens\n"),
                good.out);
  Outcome unprepared = cli_in(scratch.path(), "check --data r.yaml dataset.path=x.jsonl");
  scratch.write("x.tokenizer.json",
                "{\"tokenizer\": \"hf\", \"vocab_size\": 9, \"identity\": \"hf: 9 tokens\", "
                "\"tokens\": 840}\n");
  Outcome other = cli_in(scratch.path(), "check --data r.yaml");
  CHECK(other.status == 11);
  CHECK_MESSAGE(has(other.err,
                    "was prepared with another tokenizer: then hf: 9 tokens (9 ids), now byte: "
                    "256 bytes, end of document 256 (257 ids); dataset.path is"),
                other.err);
  for (const auto& message : {other.err, unprepared.err})
    CHECK_FALSE_MESSAGE(has(message, "\\x0a"), message);
}

TEST_CASE("a broken tokenizer is reported at its setting, also if model.init_from is that folder") {
  Scratch scratch("mtrain-check-broken");
  const std::string words =
      "dataset=gpt dataset.path=x model.init_from=both tokenizer=hf tokenizer.path=both "
      "run.dir=r";
  write_at(scratch / "both/tokenizer.json", "{\"model\": ");
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy(source_root() / "tests/golden/llama_tiny" / file, scratch / "both" / file);
  scratch.write("r.yaml", quant_recipe("type: llama, seq_length: 8", "train: {steps: 3}\n"));
  for (const char* command : {"check --data r.yaml ", "r.yaml "}) {
    CAPTURE(command);
    Outcome done = cli_in(scratch.path(), command + words);
    CHECK(done.status == 11);
    CHECK_MESSAGE(has(done.err, "tokenizer.path is 'both'"), done.err);
    CHECK_FALSE_MESSAGE(has(done.err, "model.init_from is"), done.err);
  }
}

TEST_CASE(
    "check --data: advice names the tokenizer's file, the faulty record, and settings that fit") {
  Scratch scratch("mtrain-check-advice");
  scratch.write("a.txt", "some text\n");
  scratch.write("my.json", small_tokenizer());
  std::string lines;
  for (int i = 0; i < 8; ++i)
    lines += i == 2 ? "{\"promt\": \"a\", \"completion\": \"b\"}\n"
                    : "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
  scratch.write("x.jsonl", lines);
  scratch.write("r.yaml", recipe("{type: sft, path: x.jsonl, split: '100,0,0'}",
                                 "validation: {interval: 0, steps: 0}\n"));
  const auto says = [&](const std::string& words, const std::string& part) {
    const Outcome out = cli_in(scratch.path(), "check --data r.yaml " + words);
    CHECK(out.status != 0);
    CHECK_MESSAGE(has(out.err, part), out.err);
  };
  says("dataset=gpt dataset.path=a.txt tokenizer.type=hf tokenizer.path=my.json",
       "--tokenizer hf path=" + (scratch / "my.json").string());
  says("", "x.jsonl:3: ");
  CHECK(cli_in(scratch.path(), "check --data r.yaml dataset.on_bad=skip").status == 0);
  says("dataset=preference dataset.path=x.jsonl dataset.split=100,0,0 objective=dpo",
       "to train on answers as they are: dataset=sft objective=tokens");
  says("dataset.chat_template=mine/chat.jinja", "write dataset.template_path=mine/chat.jinja");
}

TEST_CASE("-q leaves out what is only information about the data") {
  Scratch scratch("mtrain-check-quiet");
  std::string chats;
  for (int i = 0; i < 4; ++i)
    chats += R"({"prompt": "a", "completion": "b"})"
             "\n";
  scratch.write("chats.jsonl", chats);
  scratch.write("r.yaml", recipe("{type: sft, path: chats.jsonl, split: '50,50,0'}",
                                 "validation: {interval: 0, steps: 0}\n"));
  CHECK(has(cli_in(scratch.path(), "check --data r.yaml").err, "chats.jsonl"));
  CHECK(cli_in(scratch.path(), "check --data -q r.yaml").err == "");
  REQUIRE(cli_in(scratch.path(), "r.yaml -q run.dir=r").status == 0);
  const Outcome loud = cli_in(scratch.path(), "eval --from r --batches 1"),
                quiet = cli_in(scratch.path(), "eval -q --from r --batches 1");
  CHECK_MESSAGE(has(loud.err, "chats.jsonl"), loud.err);
  CHECK(quiet.status == 0);
  CHECK_FALSE_MESSAGE(has(quiet.err, "sft:"), quiet.err);
}
