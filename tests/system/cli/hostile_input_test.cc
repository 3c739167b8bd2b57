// What strangers put into recipes, arguments and files: sizes beyond all machines, pipes in place
// of files, text that a terminal would obey. Each ends at once, with an error that says where and
// what.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>

#include "../process.h"
#include "mtrain/base/text.h"
#include "training_run.h"

using namespace mtrain;
using testing::cli;
using testing::has;
using testing::Outcome;
using testing::Scratch;

namespace {

std::string recipe_in(const Scratch& scratch) {
  std::string path = (scratch / "tiny.yaml").string();
  std::ofstream(path) << testing::tiny_recipe();
  return path;
}

/// A folder of Hugging Face's layout with weights and nothing else.
std::string hf_folder_in(const Scratch& scratch) {
  std::string folder = (scratch / "hf").string(),
              header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::filesystem::create_directories(folder);
  std::string size(8, '\0');
  size[0] = static_cast<char>(header.size());
  std::ofstream(folder + "/model.safetensors", std::ios::binary)
      << size << header << std::string(4, '\0');
  return folder;
}

/// Refused as a configuration that names the setting, in a check and in a run.
void refused(const std::string& recipe, const std::string& change,
             const std::vector<std::string>& says, const std::string& folder) {
  for (const char* command : {"check", "train"}) {
    std::vector<std::string> words = {command, recipe};
    for (const std::string& word : split(change, ' ')) words.push_back(word);
    words.push_back("run.dir=" + folder);
    Outcome out = cli(words);
    INFO(command << " " << change << " | " << out.out << out.err);
    CHECK(out.status == 10);
    for (const std::string& part : says) CHECK(has(out.err, part));
  }
}

}  // namespace

TEST_CASE("a size that no arithmetic holds is refused by name, with what is possible") {
  Scratch scratch("mtrain-hostile-sizes");
  std::string recipe = recipe_in(scratch), folder = (scratch / "run").string();
  const std::string huge = "=4611686018427387904", most = "<= 2147483647";
  for (const char* key : {"model.ffn_hidden_size", "model.hidden_size", "model.vocab_size",
                          "model.vocab_multiple", "model.head_dim", "model.heads", "model.kv_heads",
                          "model.seq_length", "train.global_batch_size", "train.micro_batch_size",
                          "train.steps", "dist.tp", "dist.pp", "dist.cp", "validation.steps"})
    refused(recipe, key + huge, {key, most}, folder);
  refused(recipe, "model.layers=1000000", {"model.layers", "65536"}, folder);
  refused(recipe, "train.micro_batch_size=2147483647 train.global_batch_size=2147483647",
          {"rule micro-batch-tokens", "33554432"}, folder);
  refused(recipe, "train.micro_batch_size=1 train.global_batch_size=2147483647",
          {"rule step-micro-batches", "65536"}, folder);
  refused(recipe, "model.heads=2147483646 model.kv_heads=1 model.head_dim=2147483646",
          {"rule attention-width"}, folder);
  refused(recipe, "model.hidden_size=2147483648", {"model.hidden_size", most}, folder);
}

TEST_CASE("a size that can be counted but not held is planned, and refused as too much memory") {
  Scratch scratch("mtrain-hostile-memory");
  std::string recipe = recipe_in(scratch), folder = (scratch / "run").string();
  for (const char* change : {"model.ffn_hidden_size=2147483647", "model.vocab_size=2147483647",
                             "model.head_dim=134217728", "model.vocab_multiple=2147483647",
#ifndef __SANITIZE_THREAD__  // whose shadow memory is in the way of so many mappings
                             "model.layers=4096 model.ffn_hidden_size=1000000",
#endif
                             "model.hidden_size=2147483640"})
    for (const auto& words : {std::vector<std::string>{"train"}, {"check", "--memory"}}) {
      std::vector<std::string> command = words;
      command.insert(command.end(), {recipe, "run.dir=" + folder});
      for (const std::string& word : split(change, ' ')) command.push_back(word);
      Outcome out = cli(command);
      INFO(join(command, " ") << " | " << out.out << out.err);
      CHECK(out.status == 10);
      CHECK((has(out.err, "out of memory: a step needs") || has(out.err, "no address space of") ||
             has(out.err, "elements")));
    }
}

TEST_CASE("a pipe in the place of a file is refused, and nobody waits for who might write to it") {
  Scratch scratch("mtrain-hostile-pipes");
  std::string recipe = recipe_in(scratch), pipe = (scratch / "pipe.yaml").string(),
              data = (scratch / "pipe.jsonl").string();
  std::string folder = hf_folder_in(scratch);
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  REQUIRE(::mkfifo(data.c_str(), 0600) == 0);
  REQUIRE(::mkfifo((folder + "/config.json").c_str(), 0600) == 0);
  REQUIRE(::mkfifo((folder + "/tokenizer.json").c_str(), 0600) == 0);
  const std::vector<std::vector<std::string>> commands = {
      {"check", pipe},
      {"check", recipe, "-f", pipe},
      {"train", recipe, "tokenizer.type=hf", "tokenizer.path=" + folder},
      {"train", recipe, "tokenizer.type=tiktoken", "tokenizer.path=" + pipe},
      {"train", recipe, "tokenizer.type=sentencepiece", "tokenizer.path=" + pipe},
      {"check", recipe, "model.init_from=" + folder},
      {"check", recipe, "run.name=${file_text:pipe.yaml}"},
      {"data", "prepare", "-i", data, "-o", (scratch / "out").string(), "-t", "byte"},
      {"data", "tokenize", "-i", data, "-t", "byte"},
      {"data", "render", data, "--template", recipe},
  };
  for (auto words : commands) {
    if (words[0] == "train") words.push_back("run.dir=" + (scratch / "run").string());
    Outcome out = cli(words);
    INFO(join(words, " ") << " | " << out.out << out.err);
    CHECK(out.status != 0);
    CHECK(out.status != 70);
    CHECK(has(out.err, "wanted a regular file"));
  }
}

TEST_CASE("what a message quotes cannot move the cursor, hide text or turn it round") {
  Scratch scratch("mtrain-hostile-text");
  std::string name = (scratch / "a\xE2\x80\xAE\x1b[2J\xE2\x80\x8B.yaml").string(),
              recipe = recipe_in(scratch);
  std::ofstream(name) << "model: {type: \"a\\u202Eb\", x\xE2\x80\xAEy: 1}\n";
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"check", name},
           {"check", name + "x"},
           {"check", recipe, "model.\xE2\x80\xAEx=1"},
           {"check", recipe, "run.name=\xE2\x80\xAE,\x1b[2J["},
           {"train", recipe, "tokenizer.type=hf", "tokenizer.path=" + name,
            "run.dir=" + (scratch / "run").string()},
           {"data", "prepare", "-i", name + "x.txt", "-o", (scratch / "out").string(), "-t",
            "byte"},
           {"plugins", "inspect", name},
           {"\xE2\x80\xAE"},
           {"checkpoint", "digest", name}}) {
    Outcome out = cli(words);
    INFO(join(words, " ") << " | " << out.status);
    for (const char* bad : {"\xE2\x80\xAE", "\xE2\x80\x8B", "\x1b["})
      CHECK_FALSE(has(out.err, bad));
    CHECK(out.status != 70);
  }
}

TEST_CASE("a number beyond all types is a fault of its file, like any other") {
  Scratch scratch("mtrain-hostile-numbers");
  std::string recipe = recipe_in(scratch), lines = (scratch / "lines.jsonl").string();
  std::ofstream(lines) << "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"text\": "
                          "\"x\", \"n\": 1e400}\n";
  std::string hf = hf_folder_in(scratch), templates = (scratch / "t.jinja").string();
  std::ofstream(templates) << "{{ messages }}";
  std::ofstream(hf + "/config.json") << "{\"hidden_size\": 1e400}";
  for (const auto& [words, status] : std::vector<std::pair<std::vector<std::string>, int>>{
           {{"data", "render", lines, "--template", templates}, 11},
           {{"data", "tokenize", "-i", lines, "-t", "byte"}, 11},
           {{"check", recipe, "model.init_from=" + hf}, 12}}) {
    Outcome out = cli(words);
    INFO(join(words, " ") << " | " << out.out << out.err);
    CHECK(out.status == status);
    CHECK(has(out.err, "1e400"));
  }
}
