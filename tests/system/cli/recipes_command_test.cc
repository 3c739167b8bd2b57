// mtrain recipes: listing, copying, starting anew, verifying.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "shell.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using nlohmann::json;

TEST_CASE("recipes ls says what each is and whether it runs here") {
  Scratch scratch("mtrain-ls");
  write_at(scratch / "recipes/good.yaml",
           "# yaml-language-server: $schema=x\n# The good one.\n" + tiny_recipe());
  write_at(scratch / "recipes/bad.yaml", "# The bad one.\nmodel: {type: llama, layers: many}\n");
  write_at(scratch / "recipes/open.yaml",
           "# Wants a length.\nmodel: gpt2\ndataset: mock\ntrain: {steps: ???}\n");
  write_at(scratch / "recipes/planned.yaml",
           "# Not yet.\n" + tiny_recipe() + "offload: {modules: [core_attn]}\n");
  write_at(scratch / "recipes/optimizer/mine.yaml", "# An option.\nlr: 1\n");
  const std::string records =
      "model: {type: llama}\ntokenizer: byte\ntrain: {steps: 1}\ndataset: {type: sft, path: ";
  write_at(
      scratch / "recipes/absent.yaml",
      "# Its data are not here, which takes a description of more than sixty bytes to tell.\n" +
          records + "chats.jsonl}\n");
  write_at(scratch / "recipes/there.yaml", records + "open.yaml}\n");
  json rows = json::parse(cli_in(scratch.path(), "recipes ls --json --groups").out);
  std::map<std::string, json> by_name;
  for (const auto& row : rows)
    if (!row.at("shadowed").get<bool>()) by_name[row.at("name")] = row;
  CHECK(by_name.at("good").at("description") == "The good one.");
  CHECK(by_name.at("good").at("state") == "ready");
  CHECK(by_name.at("bad").at("state") == "faulty");
  CHECK(by_name.at("open").at("state") == "incomplete");
  CHECK(by_name.at("open").at("needs").at(0) == "train.steps");
  CHECK(by_name.at("absent").at("state") == "incomplete");
  CHECK(by_name.at("absent").at("needs").at(0) == "the file chats.jsonl (dataset.path)");
  CHECK(by_name.at("there").at("state") == "ready");
  CHECK(by_name.at("planned").at("state") == "not_built");
  CHECK(by_name.at("optimizer/mine").at("description") == "An option.");
  CHECK(by_name.count("quickstart") == 1);
  Outcome text = cli_in(scratch.path(), "recipes ls");
  CHECK(has(text.out, "needs train.steps"));
  CHECK_FALSE(has(text.out, "An option."));
  // One line each; the states stand in one column.
  CHECK(std::count(text.out.begin(), text.out.end(), '\n') ==
        std::count_if(rows.begin(), rows.end(), [](const json& row) {
          return row.at("name").get<std::string>().find('/') == std::string::npos;
        }));
  auto column_of = [&](const std::string& name, const std::string& state) {
    const size_t line = ("\n" + text.out).find("\n" + name + " "), at = text.out.find(state, line);
    REQUIRE_MESSAGE(at < text.out.find('\n', line), text.out);
    const std::string before = text.out.substr(line, at - line);
    return std::count_if(before.begin(), before.end(), [](char c) { return (c & 0xC0) != 0x80; });
  };
  CHECK(column_of("good", "ready") ==
        column_of("absent", "needs the file chats.jsonl (dataset.path)"));
  CHECK(column_of("good", "ready") == column_of("planned", "not supported: "));
}

TEST_CASE("recipes cp and new: a modeline, nothing overwritten, a recipe that is right") {
  Scratch scratch("mtrain-cp");
  write_at(scratch / "data/quickstart/corpus.idx", "");
  Outcome copied = cli_in(scratch.path(), "recipes cp quickstart mine/one.yaml");
  CHECK_MESSAGE(copied.status == 0, copied.err);
  std::string text = slurp(scratch / "mine/one.yaml");
  CHECK(text.starts_with("# yaml-language-server: $schema="));
  // Absolute, or relative where the schema lies under the same top folder as the copy.
  const fs::path schema = text.substr(text.find('=') + 1, text.find('\n') - text.find('=') - 1);
  CHECK(json::parse(slurp(scratch / "mine" / schema)).at("title") == "mtrain recipe");
  // The folder is another, and so is the way to the data; nothing else changes.
  const std::string original = cli({"recipes", "cat", "quickstart"}).out, from_here = "path: data/",
                    from_there = "path: ../data/";
  std::string expected = original;
  expected.replace(expected.find(from_here), from_here.size(), from_there);
  CHECK(has(text, expected));
  CHECK(cli_in(scratch.path(), "recipes cp quickstart mine/one.yaml").status == 2);
  CHECK(cli_in(scratch.path(), "recipes cp mine/one.yaml two.yaml").status == 0);
  CHECK(has(slurp(scratch / "two.yaml"), original));
  Outcome absent = cli_in(scratch.path(), "recipes cp quikstart three.yaml");
  CHECK(absent.status == 10);
  CHECK(has(absent.err, "did you mean quickstart"));
  for (const char* model : {"llama", "gpt2"}) {
    std::string file = std::string(model) + ".yaml";
    CHECK(cli_in(scratch.path(),
                 "recipes new --model " + std::string(model) + " --dataset mock " + file)
              .status == 0);
    Outcome checked = cli_in(scratch.path(), "check " + file);
    CHECK_MESSAGE(checked.status == 0, checked.err, slurp(scratch / file));
  }
  CHECK(cli_in(scratch.path(), "recipes new --model lama x.yaml").status == 10);
}

TEST_CASE("recipes new: of each model, the recipe passes `check`, and names data to prepare") {
  Scratch scratch("mtrain-new");
  for (const json& row : json::parse(cli({"plugins", "ls", "--json"}).out)) {
    if (row.at("kind") != "model") continue;
    const std::string model = row.at("name"), file = model + ".yaml";
    CHECK(cli_in(scratch.path(), "recipes new --model " + model + " " + file).status == 0);
    Outcome checked = cli_in(scratch.path(), "check " + file);
    CHECK_MESSAGE(checked.status == 0, model, checked.err);
    CHECK_MESSAGE(slurp(scratch / file).find("path: data/bible") != std::string::npos,
                  slurp(scratch / file));
    CHECK(slurp(scratch / file).find("  layers: ") != std::string::npos);  // the sizes are shown
    // Masked tokens need special tokens, which the default tokenizer lacks.
    CHECK((slurp(scratch / file).find("type: hf") != std::string::npos) == (model == "bert"));
    CHECK((slurp(scratch / file).find("path: /models/bert-base-uncased") != std::string::npos) ==
          (model == "bert"));
    CHECK((slurp(scratch / file).find("extra_ids: 100") != std::string::npos) == (model == "t5"));
  }
}

TEST_CASE(
    "recipes new refuses parts that are not implemented or do not fit, and names those that do") {
  Scratch scratch("mtrain-new-unfit");
  for (const auto& [words, message, help] :
       {std::tuple{"--model bert --dataset gpt",
                   "gpt has samples for the objective 'next token', but bert learns the objective "
                   "'masked token'",
                   "datasets for bert: bert, mock"},
        {"--model gpt2 --dataset bert", "but gpt2 learns the objective 'next token'",
         "datasets for gpt2: gpt, "},
        {"--model t5 --dataset t5",
         "t5 has samples for the objective 'next token', but t5 learns the objective 'sequence to "
         "sequence'",
         "datasets for t5: t5_seq2seq, mock"},
        {"--model lama", "there is no model 'lama'", "did you mean llama?"},
        {"--dataset nothing-like-it", "there is no dataset 'nothing-like-it'",
         "there are: bert, classification, gpt, "}}) {
    Outcome out = cli_in(scratch.path(), std::string("recipes new r.yaml ") + words);
    CHECK_MESSAGE(out.status == 10, out.err);
    CHECK_MESSAGE(has(out.err, message), out.err);
    CHECK_MESSAGE(has(out.err, help), out.err);
    CHECK_FALSE(fs::exists(scratch / "r.yaml"));
  }
  for (const char* words : {"a.yaml --model bert", "b.yaml --model bert --dataset mock",
                            "c.yaml --model llama --dataset preference",
                            "d.yaml --model llama --dataset classification"})
    CHECK(cli_in(scratch.path(), std::string("recipes new ") + words).status == 0);
  CHECK(has(slurp(scratch / "c.yaml"), "type: dpo"));
  CHECK(has(slurp(scratch / "d.yaml"), "labels: 2"));
}

TEST_CASE(
    "in a project that holds mtrain, too, the schema's path is relative, so that the project can "
    "be moved") {
  const fs::path folder = build_root() / "tests" / ("modeline-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  Outcome copied = cli({"recipes", "cp", "quickstart", (folder / "one.yaml").string()});
  std::string text = slurp(folder / "one.yaml");
  CHECK_MESSAGE(copied.status == 0, copied.err);
  CHECK(text.starts_with("# yaml-language-server: $schema=../"));
  std::string schema = text.substr(text.find('=') + 1, text.find('\n') - text.find('=') - 1);
  CHECK(json::parse(slurp(folder / schema)).at("title") == "mtrain recipe");
  fs::remove_all(folder);
}

TEST_CASE("recipes verify: a table, and status 10 for a faulty one") {
  Scratch scratch("mtrain-verify");
  std::string good = scratch.write("good.yaml", tiny_recipe()),
              bad = scratch.write("bad.yaml", "model: {type: llama, layers: 0}\n");
  CHECK(cli({"recipes", "verify", good}).status == 0);
  Outcome both = cli({"recipes", "verify", good, bad});
  CHECK(both.status == 10);
  CHECK(has(both.out, "ready"));
  CHECK(has(both.err, "model.layers"));
  Outcome all = cli({"recipes", "verify"});
  CHECK_MESSAGE(all.status == 0, all.out, all.err);
}

TEST_CASE("recipes cp: options and texts next to a recipe are copied with it, or it is refused") {
  Scratch scratch("mtrain-cp-files");
  auto in = [&](const std::string& words) { return cli_in(scratch.path(), words); };
  write_at(scratch / "a/optimizer/adamw.yaml", "type: adamw\nlr: 7e-3\nbeta2: 0.5\n");
  write_at(scratch / "a/tok.txt", "a-name\n");
  write_at(scratch / "a/common.yaml", "train: {steps: 9}\n");
  write_at(scratch / "a/dataset/mine.yaml", "type: gpt\npath: ../data/x\n");
  const std::string rest =
      "model: {type: llama, layers: 1, hidden_size: 32, heads: 4, ffn_hidden_size: 128, "
      "seq_length: 64}\ntokenizer: byte\n";
  write_at(scratch / "a/r.yaml",
           "defaults: [{optimizer: adamw}, ./common.yaml, {dataset: mine}, _self_]\n" + rest +
               "run: {name: '${file_text:tok.txt}', dir: 'out/${run:recipe}'}\n");
  Outcome refused = in("recipes cp a/r.yaml b/c/copy.yaml");
  CHECK(refused.status == 10);
  for (const char* part : {"a/optimizer/adamw.yaml", "a/common.yaml", "a/dataset/mine.yaml",
                           "a/tok.txt", "--with-files"})
    CHECK_MESSAGE(has(refused.err, part), refused.err);
  CHECK_FALSE(fs::exists(scratch / "b/c/copy.yaml"));

  Outcome copied = in("recipes cp --with-files a/r.yaml b/c/copy.yaml");
  REQUIRE_MESSAGE(copied.status == 0, copied.err);
  auto value = [&](const std::string& key, const std::string& file) {
    return in("config show " + key + " " + file).out;
  };
  for (const char* key : {"optimizer", "dataset", "train.steps", "run.name"})
    CHECK_MESSAGE(value(key, "b/c/copy.yaml") == value(key, "a/r.yaml"), key);
  CHECK(has(value("dataset.path", "b/c/copy.yaml"), (scratch / "a/data/x").string()));
  // A second copy there finds the same files; one whose options would be others is refused.
  CHECK(in("recipes cp a/r.yaml b/c/copy2.yaml").status == 0);
  write_at(scratch / "d/optimizer/adamw.yaml", "lr: 1\n");
  Outcome other = in("recipes cp --with-files a/r.yaml d/copy.yaml");
  CHECK(other.status == 2);
  CHECK_MESSAGE(has(other.err, "d/optimizer/adamw.yaml"), other.err);
  CHECK_FALSE(fs::exists(scratch / "d/copy.yaml"));
  CHECK_FALSE(fs::exists(scratch / "d/tok.txt"));
  // An option of the folder of the copy takes the place of one that comes with mtrain.
  write_at(scratch / "e.yaml", "defaults: [{optimizer: adamw}, _self_]\ndataset: mock\n" + rest +
                                   "train: {steps: 1}\n");
  Outcome own = in("recipes cp e.yaml d/e.yaml");
  CHECK(own.status == 10);
  CHECK_MESSAGE(has(own.err, "optimizer.lr would be 1"), own.err);
  CHECK_FALSE(fs::exists(scratch / "d/e.yaml"));
  CHECK(in("recipes cp e.yaml f/e.yaml").status == 0);
}
