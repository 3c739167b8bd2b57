// checkpoint.hf in every layout: the ranks share the files, whose bytes are those of an export by
// one process, and a failure leaves nothing and is reported once.
#include <doctest/doctest.h>

#include <map>

#include "done.h"
#include "shell.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

std::string recipe(const std::string& model) {
  return quant_recipe(model +
                          ", layers: 4, hidden_size: 32, heads: 4, kv_heads: 2, "
                          "ffn_hidden_size: 48, seq_length: 16",
                      "tokenizer: byte\ntrain: {steps: 2, micro_batch_size: 1, "
                      "global_batch_size: 4}\nscheduler: {warmup_steps: 1}\n"
                      "checkpoint: {hf: hf, hf_shard_size: 12KB}\n");
}

std::map<std::string, std::string> files(const fs::path& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::directory_iterator(folder))
    out[entry.path().filename()] = slurp(entry.path());
  return out;
}

size_t count(const std::string& text, const std::string& part) {
  size_t out = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

}  // namespace

TEST_CASE("checkpoint.hf: ranks share the files, and the bytes are those of one rank's export") {
  const std::string dense = "type: llama";
  const std::string experts = "type: moe, moe: {experts: 4, top_k: 2}";
  struct Layout {
    std::string model, words, by;
  };
  // Without dist.zero, ranks with copies of the same parameters save nothing.
  for (const Layout& layout :
       {Layout{dense, "dist.nproc=2 dist.tp=2", " by 2 ranks"},
        Layout{dense, "dist.nproc=2 dist.pp=2", " by 2 ranks"},
        Layout{dense, "dist.nproc=2 dist.zero=3", " by 2 ranks"},
        Layout{dense, "dist.nproc=2 dist.zero=3 checkpoint.async=true", " by 2 ranks"},
        Layout{experts, "dist.nproc=2 dist.ep=2", " by 2 ranks"},
        Layout{dense, "dist.nproc=4 dist.tp=2 dist.pp=2 dist.sp=true", " by 4 ranks"},
        Layout{dense, "dist.nproc=4 dist.tp=2", " by 2 ranks"},
        Layout{dense, "dist.nproc=2", "files"}}) {
    CAPTURE(layout.words);
    const Scratch scratch("mtrain-hf-layout");
    scratch.write("r.yaml", recipe(layout.model));
    const Outcome run = done(scratch, "r.yaml run.dir=run " + layout.words);
    CHECK_MESSAGE(has(run.out + run.err, layout.by), run.out, run.err);
    CHECK(count(run.out + run.err, "weights of step 2") == 1);
    done(scratch, "-q export run expected --shard-size 12KB");
    const auto wanted = files(scratch / "expected");
    CHECK(wanted.size() > 6);
    CHECK(files(scratch / "hf/step-2") == wanted);
    CHECK(std::distance(fs::directory_iterator(scratch / "hf"), fs::directory_iterator()) == 1);
  }
}

TEST_CASE("checkpoint.hf: a failure of ranks is reported once, leaves nothing, and training ends") {
  for (const std::string words : {"dist.nproc=1", "dist.nproc=2 dist.tp=2"}) {
    CAPTURE(words);
    const Scratch scratch("mtrain-hf-failed");
    scratch.write("r.yaml", recipe("type: llama"));
    const Outcome run = cli_in(scratch.path(), "r.yaml run.dir=run " + words, "/nowhere",
                               {"MTRAIN_FAULT=hf.write:3:errno=ENOSPC"});
    CHECK_MESSAGE(run.status == 0, run.err);
    const std::string text = run.out + run.err;
    CHECK_MESSAGE(count(text, "the weights of step 2 are not exported") == 1, text);
    CHECK(count(text, "No space left") == 1);
    CHECK(fs::is_empty(scratch / "hf"));
  }
}

TEST_CASE("checkpoint.hf_shard_size: other words than sizes are refused") {
  const Scratch scratch("mtrain-hf-size");
  scratch.write("r.yaml", recipe("type: llama"));
  const Outcome outcome = cli_in(scratch.path(), "check r.yaml checkpoint.hf_shard_size=5XB");
  CHECK(outcome.status == 10);
  CHECK_MESSAGE(has(outcome.out + outcome.err, "wanted a size such as 5GB or 500MB, got '5XB'"),
                outcome.out, outcome.err);
}
