// The commands of `mtrain data` on packs, which are a .bin/.idx pair with files of their own.
#include <doctest/doctest.h>

#include "../cli/shell.h"
#include "data_files.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

/// Writes the packs at `prefix` by the tokenizer byte with these settings.
void pack(const ScratchFolder& scratch, const std::string& prefix,
          const std::string& settings = "") {
  put(scratch / "x.jsonl",
      "{\"prompt\": \"0\", \"completion\": \"abcdefgh\"}\n"
      "{\"prompt\": \"00\", \"completion\": \"abcdefgh\"}\n"
      "{\"prompt\": \"000\", \"completion\": \"abcdefgh\"}\n");
  auto done = cli_in(scratch.path(), cat("data pack x.jsonl --seq-length 16 --force -o ", prefix,
                                         " -t byte ", settings));
  REQUIRE_MESSAGE(done.status == 0, done.err);
}

}  // namespace

TEST_CASE("show and verify refuse packs under another tokenizer than the one that packed them") {
  ScratchFolder scratch;
  pack(scratch, "p", "extra_ids=2");
  for (const std::string command : {"data show p", "data verify p"}) {
    CAPTURE(command);
    auto same = cli_in(scratch.path(), command + " -t byte extra_ids=2");
    CHECK_MESSAGE(same.status == 0, same.err);
    for (const std::string other : {" -t byte", " -t byte extra_ids=3"}) {
      auto refused = cli_in(scratch.path(), command + other);
      CHECK(refused.status == 11);
      for (const char* part : {"p was prepared with another tokenizer", "2 extra",
                               "choose that tokenizer", "--any-tokenizer"})
        CHECK_MESSAGE(has(refused.err, part), refused.err);
      auto accepted = cli_in(scratch.path(), command + other + " --any-tokenizer");
      CHECK_MESSAGE(accepted.status == 0, accepted.err);
    }
  }
  // Packs that replace a pair replace its record.
  put(scratch / "x.txt", "text");
  REQUIRE(cli_in(scratch.path(), "data prepare -i x.txt -o p -t byte --force").status == 0);
  CHECK(cli_in(scratch.path(), "data verify p -t byte").status == 0);
  pack(scratch, "p", "extra_ids=2");
  CHECK_FALSE(fs::exists(scratch / "p.tokenizer.json"));
  CHECK(cli_in(scratch.path(), "data verify p -t byte").status == 11);
}

TEST_CASE("datasets of texts refuse packs, whose loss mask they would lose, and the mask itself") {
  ScratchFolder scratch;
  pack(scratch, "p");
  put(scratch / "r.yaml",
      "model: {type: llama, layers: 1, hidden_size: 16, heads: 2, seq_length: 8}\n"
      "tokenizer: byte\ndataset: {type: gpt, path: p}\ntrain: {steps: 1, global_batch_size: 1}\n"
      "scheduler: {warmup_steps: 0}\nvalidation: {steps: 0}\n");
  for (const auto& [words, part] :
       {std::pair{"check --data r.yaml", "p has packed fine-tuning records"},
        {"r.yaml -q run.dir=run", "p has packed fine-tuning records"},
        {"check --data r.yaml dataset.path=p.learnt", "p.learnt is the loss mask of packed"}}) {
    CAPTURE(words);
    auto refused = cli_in(scratch.path(), words);
    CHECK(refused.status == 11);
    CHECK_MESSAGE(has(refused.err, part), refused.err);
    CHECK_MESSAGE(has(refused.err, "dataset=sft"), refused.err);
  }
}

TEST_CASE("verify reads all files of packs") {
  ScratchFolder scratch;
  pack(scratch, "p");
  const auto valid = [&](const std::string& prefix, const char* more = "") {
    auto done = cli_in(scratch.path(), cat("data verify ", prefix, more));
    CHECK_MESSAGE(done.status == 0, done.err);
    CHECK(has(done.out, cat(prefix, ": valid")));
  };
  valid("p");
  valid("p.idx");
  valid("p", " -t byte");
  for (const char* end : {".bin", ".learnt.bin", ".learnt.idx", ".packed.json"}) {
    CAPTURE(end);
    const fs::path path = scratch / cat("p", end);
    const std::string whole = read_file(path);
    std::string bad = whole;
    bad[0] = static_cast<char>(bad[0] ^ 1);
    put(path, bad);
    auto damaged = cli_in(scratch.path(), "data verify p");
    CHECK(damaged.status == 11);
    CHECK_MESSAGE(has(damaged.err, "p."), damaged.err);
    CHECK(damaged.out.empty());
    put(path, whole);
  }
  fs::rename(scratch / "p.learnt.bin", scratch / "kept");
  auto partial = cli_in(scratch.path(), "data verify p");
  CHECK(partial.status == 11);
  CHECK_MESSAGE(has(partial.err, "p.learnt.bin does not exist"), partial.err);
  fs::rename(scratch / "kept", scratch / "p.learnt.bin");
  auto small = cli_in(scratch.path(), "data verify p --vocab-size 100");
  CHECK(small.status == 11);
  CHECK_MESSAGE(has(small.err, "outside the vocabulary of 100"), small.err);
}

TEST_CASE("merge refuses packs by name") {
  ScratchFolder scratch;
  pack(scratch, "p");
  put(scratch / "x.txt", "text");
  REQUIRE(cli_in(scratch.path(), "data prepare -i x.txt -o x -t byte").status == 0);
  for (const char* inputs : {"p p", "x p", "p x --any-tokenizer"}) {
    auto refused = cli_in(scratch.path(), cat("data merge ", inputs, " -o o"));
    CHECK(refused.status == 11);
    CHECK_MESSAGE(has(refused.err, "p has packed records, which are not merged"), refused.err);
    CHECK_FALSE(fs::exists(scratch / "o.idx"));
  }
}

TEST_CASE("pack and merge create the folder of their output, as prepare does") {
  ScratchFolder scratch;
  pack(scratch, "new/folder/p");
  CHECK(fs::exists(scratch / "new/folder/p.packed.json"));
  CHECK(cli_in(scratch.path(), "data verify new/folder/p").status == 0);
  put(scratch / "x.txt", "text");
  REQUIRE(cli_in(scratch.path(), "data prepare -i x.txt -o x -t byte").status == 0);
  auto merged = cli_in(scratch.path(), "data merge x x -o other/folder/xx");
  CHECK_MESSAGE(merged.status == 0, merged.err);
  CHECK(fs::exists(scratch / "other/folder/xx.idx"));
}
