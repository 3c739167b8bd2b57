// A run that fails before its first step is done, and what -q prints.
#include <doctest/doctest.h>

#include "done.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

const std::string kTiny =
    "model: {type: llama, layers: 1, hidden_size: 16, heads: 2, ffn_hidden_size: 24, seq_length: "
    "8}\ntokenizer: byte\ndataset: mock\nrun: {threads: 1}\nlogger: {tensorboard: false}\n"
    "train: {steps: 2, global_batch_size: 2}\nscheduler: {warmup_steps: 0}\n";

}  // namespace

TEST_CASE("a new run whose first sample is refused leaves no folder") {
  const Scratch scratch("mtrain-first-sample");
  scratch.write("r.yaml", kTiny);
  scratch.write("x.txt", "many letters of a text\n\nand some more of them\n");
  done(scratch, "data prepare -q -i x.txt -o x -t byte --split-on blank-lines");
  done(scratch, "r.yaml -q run.dir=runs/good");
  REQUIRE(fs::read_symlink(scratch / "runs/latest") == "good");
  const Outcome refused = cli_in(
      scratch.path(),
      "r.yaml -q run.dir=runs/bad validation.steps=0 'tokenizer={type: \"null\", vocab_size: 20}' "
      "dataset=gpt dataset.path=x dataset.any_tokenizer=true dataset.split='1'");
  CHECK_MESSAGE(refused.status == 11, refused.err);
  CHECK_FALSE(fs::exists(scratch / "runs/bad"));
  CHECK(fs::read_symlink(scratch / "runs/latest") == "good");
  const Outcome step = cli_in(scratch.path(), "r.yaml -q run.dir=deep/runs/new", "/nowhere",
                              {"MTRAIN_FAULT=train.loss:1:throw"});
  CHECK(step.status == 18);
  CHECK_FALSE(fs::exists(scratch / "deep"));
  const Outcome second = cli_in(scratch.path(), "r.yaml -q run.dir=second", "/nowhere",
                                {"MTRAIN_FAULT=train.loss:2:throw"});
  CHECK(second.status == 18);
  CHECK(fs::exists(scratch / "second/config/001"));
}

TEST_CASE("runs show says that a resume failed before its first step was done") {
  const Scratch scratch("mtrain-first-resume");
  scratch.write("r.yaml", kTiny);
  done(scratch, "r.yaml -q run.dir=run");
  const Outcome failed = cli_in(scratch.path(), "r.yaml -q run.dir=run train.steps=4", "/nowhere",
                                {"MTRAIN_FAULT=train.loss:1:throw"});
  CHECK(failed.status == 18);
  const std::string shown = done(scratch, "runs show run").out;
  CHECK_MESSAGE(has(shown, "failed before its first step was done"), shown);
  CHECK_FALSE(has(shown, "interrupted"));
  done(scratch, "r.yaml -q run.dir=run train.steps=4");
  CHECK(has(done(scratch, "runs show run").out, "steps 3 to 4"));
  done(scratch, "rerun run -q");
}

TEST_CASE("-q leaves warnings: those of rules and those of a resume") {
  const Scratch scratch("mtrain-quiet");
  scratch.write("r.yaml", kTiny);
  const Outcome rule = done(scratch, "r.yaml -q run.dir=run train.skip_steps=[100]");
  const Outcome loud = done(scratch, "r.yaml run.dir=loud train.skip_steps=[100]");
  CHECK(has(loud.err, "warning"));
  CHECK_MESSAGE(has(rule.err, "warning"), rule.err);
  CHECK(rule.out.empty());
  const Outcome resumed = done(scratch,
                               "r.yaml -q run.dir=run train.steps=3 "
                               "optimizer.weight_decay=0.5");
  CHECK_MESSAGE(has(resumed.err, "optimizer.weight_decay"), resumed.err);
}
