// Words of the command line that several commands share: each is called the same everywhere and
// takes the same arguments.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "shell.h"

using namespace mtrain::testing;

TEST_CASE("an option takes one argument, also where it may be repeated") {
  Scratch scratch("mtrain-one-argument");
  scratch.write("a.jsonl", "{\"text\":\"hello\"}\n");
  scratch.write("b.jsonl", "{\"text\":\"you\"}\n");
  scratch.write("r.yaml", tiny_recipe());
  scratch.write("set.txt", "train.steps=7\n");
  auto in = [&](const std::string& words) { return cli_in(scratch.path(), words); };
  CHECK(in("data prepare -i a.jsonl -i b.jsonl -o two -t byte").status == 0);
  CHECK(has(in("data prepare -i a.jsonl -o one -t byte --json-keys text b.jsonl").err, "b.jsonl"));
  CHECK(has(in("config show -f set.txt r.yaml train.steps").out, "7"));
  CHECK(has(in("--plugin-path nowhere config show train.steps r.yaml").out, "40"));
  CHECK(has(in("config show train.steps --plugin-path nowhere r.yaml").out, "40"));
  Outcome two = in("data prepare -i a.jsonl b.jsonl -o none -t byte");
  CHECK(two.status != 0);
  CHECK_FALSE(std::filesystem::exists(scratch / "none.bin"));
  CHECK_MESSAGE(has(two.err, "'b.jsonl' is not a setting of the tokenizer"), two.err);
  CHECK_MESSAGE(has(two.err, "repeat --input: --input b.jsonl"), two.err);
  for (const char* words :
       {"r.yaml other.yaml", "train r.yaml set.txt", "check r.yaml other.yaml"}) {
    Outcome other = in(words);
    CHECK(other.status == 2);
    CHECK_MESSAGE(has(other.err, "is a second recipe; the first is r.yaml"), other.err);
  }
  CHECK_MESSAGE(has(in("check r.yaml word").err, "write key=value, as in"),
                in("check r.yaml word").err);
  CHECK(has(in("check r.yaml train.steps").err, "write train.steps=VALUE"));
  CHECK(has(in("rerun").err, "RUN|CHECKPOINT is required"));
}

TEST_CASE(
    "settings of tokenizers and datasets are words like those of a recipe, in every data command") {
  Scratch scratch("mtrain-data-settings");
  scratch.write("x.jsonl", "{\"text\":\"ab\"}\n");
  scratch.write("chats.jsonl",
                "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                "\"assistant\", \"content\": \"b\"}]}\n");
  scratch.write("t.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  auto in = [&](const std::string& words) { return cli_in(scratch.path(), words); };
  const std::string tokenizer = "-t byte extra_ids=3 ";
  Outcome made = in("data prepare -i x.jsonl -o x --append-eod " + tokenizer);
  REQUIRE_MESSAGE(made.status == 0, made.err);
  for (const std::string& words :
       {"data verify x " + tokenizer + "--eod", "data verify --eod " + tokenizer + "x",
        "data show x " + tokenizer + "--ids",
        "data render chats.jsonl --template t.jinja " + tokenizer,
        "data render --template t.jinja " + tokenizer + "chats.jsonl"}) {
    Outcome out = in(words);
    CHECK_MESSAGE(out.status == 0, words, "\n", out.err);
  }
  const std::string pairs = "{\"prompt\": \"ac\", \"completion\": \"b\"}\n";
  scratch.write("pairs.jsonl", pairs + pairs);
  CHECK(has(in("data show pairs.jsonl -t byte dataset.train_on=all").out, "[c]|[b]"));
  CHECK_FALSE(has(in("data show pairs.jsonl -t byte").out, "[c]"));
  CHECK(has(in("data verify x path=y").err, "-t NAME"));
  // A setting of the tokenizer may be written as in a recipe, which is how errors write it.
  CHECK(in("data verify x -t byte tokenizer.extra_ids=3 --eod").status == 0);
  CHECK(has(in("data prepare -i x.jsonl -o y -t hf").err, "e.g. tokenizer.path="));
  CHECK_MESSAGE(has(in("data prepare -i x.jsonl -o y -t hf tokenizer.path=gone").err, "gone"),
                in("data prepare -i x.jsonl -o y -t hf tokenizer.path=gone").err);
  CHECK(in("data render a b --template t.jinja").status == 2);
  // A value without the name of its option.
  const Outcome unnamed = in("data prepare x.jsonl -t byte -o y");
  CHECK_MESSAGE(has(unnamed.err, "help: write --input x.jsonl"), unnamed.err);
  // The name of a special token in a text.
  scratch.write("marked.jsonl", "{\"text\":\"a<extra_id_0>b\"}\n");
  scratch.write("marked_pairs.jsonl",
                "{\"prompt\":\"a\",\"chosen\":\"<extra_id_1>b\",\"rejected\":\"c\"}\n");
  const std::string with = " -t byte --ids extra_ids=2 ";
  const Outcome plain = in("data show marked.jsonl" + with),
                special = in("data show marked.jsonl" + with + "dataset.parse_special=true"),
                pairs_plain = in("data show marked_pairs.jsonl --dataset preference" + with),
                pairs_special = in("data show marked_pairs.jsonl --dataset preference" + with +
                                   "dataset.parse_special=true");
  for (const Outcome* one : {&plain, &pairs_plain})
    CHECK_MESSAGE(has(one->err, "help: dataset.parse_special=true reads"), one->err);
  for (const Outcome* one : {&special, &pairs_special})
    CHECK_MESSAGE((one->status == 0 && !has(one->err, "parse_special")), one->err);
  CHECK_MESSAGE(has(special.out, "4 tokens"), special.out);
  CHECK(has(special.out, "=258]"));
  CHECK(has(pairs_special.out, "=257]"));
  // A path in place of the plugin that reads it; a list in place of lines.
  std::filesystem::create_directory(scratch / "tok");
  CHECK(has(in("data prepare -i x.jsonl -o y -t tok").err, "help: write -t hf path=tok"));
  scratch.write("list.json", "[{\"text\": \"a\"}]");
  CHECK(has(in("data prepare -i list.json -o y -t byte").err, "jq -c"));
  CHECK(has(in("data prepare -i list.json --format jsonl -o y -t byte").err, "jq -c"));
  CHECK(has(in("data prepare -i x.jsonl --output-prefix y -t byte").err, "write -o PREFIX"));
  CHECK(has(in("generate --from x --top_k 5").err, "did you mean --top-k?"));
  CHECK(has(in("--nproc 2 generate --from x").err, "leave --nproc out"));
  CHECK(has(in("generate --from . dist.nproc=2").err, "leave dist.nproc out"));
  CHECK(has(in("check quickstart --resume runs/x").err, "run.dir=FOLDER"));
  CHECK(has(in("help quickstart").err, "quickstart is a recipe"));
}

namespace {

/// What is listed under a heading of a help page, the first word of each line.
std::vector<std::string> listed(const std::string& page, const std::string& heading) {
  std::vector<std::string> out;
  std::stringstream lines(page.substr(std::min(page.size(), page.find(heading))));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line.starts_with("  "))
    if (line[2] != ' ') out.push_back(line.substr(2, line.find(' ', 2) - 2));
  return out;
}

void each_command(const std::string& words,
                  const std::function<void(const std::string&, const std::string&)>& visit) {
  Outcome help = cli_in("/", words + " --help");
  REQUIRE_MESSAGE(help.status == 0, words);
  visit(words, help.out);
  for (const char* heading : {"Subcommands:", "SUBCOMMANDS:"})
    for (const auto& name : listed(help.out, heading)) each_command(words + " " + name, visit);
}

}  // namespace

TEST_CASE(
    "one word for one thing: JSON is asked for by --json, settings are never options of their "
    "own") {
  int commands = 0, with_json = 0;
  each_command("", [&](const std::string& words, const std::string& page) {
    ++commands;
    with_json += has(page, "--json ") || has(page, "--json\n") ? 1 : 0;
    if (has(words, " data")) CHECK_MESSAGE(!has(page, "--data "), words);
    if (has(page, "--format"))
      CHECK_MESSAGE((has(words, "schema") || has(words, "prepare")), words);
    if (has(page, "--set")) CHECK_MESSAGE(has(page, "KEY VALUE"), words);
  });
  CHECK(commands > 30);
  CHECK(with_json >= 15);
}

TEST_CASE("counts below zero or of more than 64 bits, and outputs below ~, are refused") {
  Scratch scratch("mtrain-option-values");
  scratch.write("x.txt", "a\nb\n");
  scratch.write("r.yaml", tiny_recipe());
  REQUIRE(cli_in(scratch.path(), "data prepare -q -i x.txt -o x -t byte").status == 0);
  for (const auto& [words, message] :
       {std::pair{"generate --from none --prompt a --seed -1", "--seed: wanted a whole number"},
        {"generate --from none --prompt a --seed 99999999999999999999", "--seed: wanted a whole"},
        {"data prepare -i x.txt -o y -t byte --document-bytes -1", "--document-bytes: wanted"},
        {"data prepare -i x.txt -o y -t byte --max-document-bytes -1", "--max-document-bytes: "},
        {"data prepare -i x.txt --output=~/y -t byte", "--output: ~/y is a folder called ~"},
        {"recipes new '~/x/r.yaml'", "~/x/r.yaml is a folder called ~"},
        {"recipes new '~/x/r.yaml'", "at the start of a word and outside of quotes"},
        {"recipes cp quickstart '~/r.yaml'", "~/r.yaml is a folder called ~"},
        {"help --man --output=~/man", "--output: ~/man is a folder called ~"},
        {"verify layouts quickstart --certificate=~/c.json",
         "--certificate: ~/c.json is a folder called ~"},
        {"data show x -t byte -d 0:-1", "0:-1"},
        {"bench r.yaml --rows -1", "--rows: wanted a whole number"},
        {"bench r.yaml --trace=~/t.json", "--trace: ~/t.json is a folder called ~"}}) {
    Outcome out = cli_in(scratch.path(), words);
    CHECK_MESSAGE(out.status == 2, words, out.err);
    CHECK_MESSAGE(has(out.err, message), out.err);
  }
  CHECK_FALSE(std::filesystem::exists(scratch / "y.idx"));
}

TEST_CASE("a folder of plugins that does not exist is reported once") {
  Scratch scratch("mtrain-plugin-path");
  const std::string r = scratch.write("r.yaml", tiny_recipe()),
                    absent = (scratch / "absent").string();
  auto times = [](const std::string& text, const std::string& part) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  Outcome option = cli({"--plugin-path", absent, "check", r});
  CHECK(option.status == 0);
  CHECK_MESSAGE(times(option.err, "--plugin-path: " + absent + " does not exist") == 1, option.err);
  Outcome file = cli({"check", r, "--plugin-path", r});
  CHECK_MESSAGE(times(file.err, r + " is not a folder") == 1, file.err);
  Outcome variable = cli({"check", r}, {"MTRAIN_PLUGIN_PATH=" + absent});
  CHECK_MESSAGE(times(variable.err, "MTRAIN_PLUGIN_PATH: " + absent + " does not exist") == 1,
                variable.err);
  CHECK(cli({"--plugin-path", scratch.path().string(), "check", r}).err.empty());
}

TEST_CASE("check finds shares of a split that are none, at their place") {
  Scratch scratch("mtrain-split");
  for (const char* split : {"0,0,0", "-1,1,1", "90 10 0", "90/10/0", "1,2,3,4"}) {
    CAPTURE(split);
    const std::string r = scratch.write("r.yaml", tiny_recipe() + "\n");
    Outcome out =
        cli({"check", r, "dataset={type: gpt, path: x, split: '" + std::string(split) + "'}"});
    CHECK(out.status == 10);
    CHECK_MESSAGE(has(out.err, "dataset.split"), out.err);
    CHECK_MESSAGE(has(out.err, "969,30,1"), out.err);
    CHECK_MESSAGE(has(out.err, "command line, argument 3"), out.err);
  }
}

TEST_CASE("an option that names a setting is answered with how a setting is written") {
  Scratch scratch("mtrain-dashes");
  const std::string r = scratch.write("r.yaml", tiny_recipe());
  for (const auto& [words, wanted] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"train", r, "--optimizer.lr=1"}, "write optimizer.lr=1: settings have no dashes"},
           {{r, "--lr=1e-3"}, "write optimizer.lr=1e-3:"},
           {{r, "--lr", "1e-3"}, "write optimizer.lr=1e-3:"},
           {{"check", r, "--learning-rate", "1e-3"}, "write optimizer.lr=1e-3:"},
           {{"--optimizer.lr=1", r}, "write optimizer.lr=1:"},
           {{r, "--micro-batch-size=2"}, "write train.micro_batch_size=2"},
           {{r, "--optim=adamw_torch"},
            "type=…, without dashes: adamw_torch and adamw_torch_fused are adamw"},
           {{r, "--bf16", "true"},
            "dtype=…, without dashes: bf16: true is mixed_precision.dtype=bf16"},
           {{r, "--nprocs", "2"}, "did you mean --nproc?"},
           {{r, "--bananas"}, "run `mtrain train --help`"},
           {{"plugins", "ls", "--lr=1"}, "run `mtrain plugins ls --help`"}}) {
    Outcome out = cli(words);
    CHECK(out.status == 2);
    CHECK_MESSAGE(has(out.err, wanted), out.err);
  }
}
