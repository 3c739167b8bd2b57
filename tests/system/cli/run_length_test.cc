// How long a run is: steps, passes over the data, and a warmup that fits both.
#include <doctest/doctest.h>

#include "shell.h"
#include "training_run.h"

using namespace mtrain::testing;

namespace {

/// A recipe without a length; an epoch of the mock dataset is as long as it says.
std::string recipe_of_length(const std::string& train,
                             const std::string& scheduler = "warmup_steps: 20%") {
  return quant_recipe(
      "type: llama, layers: 1, hidden_size: 16, heads: 2, ffn_hidden_size: 32, seq_length: 8",
      "train: {" + train + "}\nscheduler: {" + scheduler + "}\n",
      "{type: mock, epoch_samples: 10}");
}

std::string setting(const std::string& folder, const std::string& path) {
  Outcome out = cli({"config", "show", path, folder + "/config/resolved.yaml"});
  return out.status == 0 ? out.out.substr(0, out.out.find('\n')) : out.err;
}

}  // namespace

TEST_CASE("a run of no steps says that it reads no tokens") {
  Scratch scratch("mtrain-no-steps");
  Outcome out = cli({scratch.write("r.yaml", recipe_of_length("steps: 0")), "logger.console=plain",
                     "run.dir=" + (scratch / "run").string()});
  CHECK_MESSAGE(out.status == 0, out.err);
  CHECK_MESSAGE(has(out.out, "steps  0 = 0 tokens\n"), out.out);
}

TEST_CASE("a shorter run of any recipe just runs") {
  Scratch scratch("mtrain-short");
  const std::string fixed =
      scratch.write("r.yaml", recipe_of_length("steps: 100", "warmup_steps: 60"));
  Outcome out = cli({fixed, "train.steps=2", "run.dir=" + (scratch / "fixed").string()});
  CHECK_MESSAGE(out.status == 0, out.err);
  CHECK(has(out.err, "warmup (60 steps) lasts until the decay ends at step 2"));
  CHECK(rows(scratch / "fixed").size() == 2);
  Outcome share = cli({scratch.write("s.yaml", recipe_of_length("steps: 100")), "train.steps=10",
                       "run.dir=" + (scratch / "share").string()});
  CHECK_MESSAGE(share.status == 0, share.err);
  CHECK_FALSE(has(share.err, "warning"));
  CHECK(setting((scratch / "share").string(), "scheduler.warmup_steps") == "20%");
  Outcome shipped = cli({"check", "quickstart", "train.steps=50"});
  CHECK_MESSAGE(shipped.status == 0, shipped.err);
  CHECK_FALSE(has(shipped.err, "warning"));
}

TEST_CASE("train.epochs: the steps are counted from the data") {
  Scratch scratch("mtrain-epochs");
  const std::string file =
      scratch.write("r.yaml", recipe_of_length("epochs: 3, micro_batch_size: 4"));
  const std::string run = (scratch / "run").string(), same = (scratch / "same").string();
  Outcome out = cli({file, "run.dir=" + run});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  CHECK(has(out.err,
            "train.epochs=3: 8 steps, one epoch has 10 samples"));  // 30 samples in steps of 4
  CHECK(rows(run).size() == 8);
  CHECK(setting(run, "train.steps") == "8");
  CHECK(setting(run, "scheduler.warmup_steps") == "20%");
  // As if the same number had been written.
  train(file, same, {"train.steps=8"});
  CHECK(digest(run) == digest(same));
  // The same command goes on without a change; a rerun needs to count nothing.
  Outcome again = cli({file, "run.dir=" + run});
  CHECK_MESSAGE(again.status == 0, again.err);
  CHECK_FALSE(has(again.err, "changes the result"));
  Outcome rerun = cli({"rerun", run, "run.dir=" + (scratch / "rerun").string(), "-q"});
  CHECK_MESSAGE(rerun.status == 0, rerun.err);
  CHECK(digest(scratch / "rerun") == digest(run));
  // Rules between the number of steps and other settings apply once it is known.
  const Words patience = {file, "validation.patience=3", "validation.interval=2",
                          "validation.steps=1", "run.dir=" + (scratch / "patience").string()};
  CHECK_FALSE(has(cli(with({"check"}, patience)).err, "cannot end the run"));
  const Outcome warned = cli(patience);
  CHECK_MESSAGE(has(warned.err,
                    "validation.patience: 3 cannot end the run early: validation 4 is "
                    "after step 8, and the run has 8 steps"),
                warned.err);
  // Ranks that are threads count once.
  Outcome ranks = cli({file, "run.dir=" + (scratch / "ranks").string(), "dist.nproc=2",
                       "train.micro_batch_size=2", "train.global_batch_size=4"});
  CHECK_MESSAGE(ranks.status == 0, ranks.err);
  CHECK(rows(scratch / "ranks").size() == 8);
}

TEST_CASE("another batch size on a resume: epochs stay epochs, and the data last to the end") {
  Scratch scratch("mtrain-epochs-batch");
  const std::string file =
      scratch.write("r.yaml", recipe_of_length("epochs: 4, micro_batch_size: 1"));  // 40 samples
  const std::string run = (scratch / "run").string(), run_dir = "run.dir=" + run;
  REQUIRE(cli({file, run_dir, "-q", "train.global_batch_size=4", "checkpoint.interval=3",
               "checkpoint.keep=0"})
              .status == 0);
  CHECK(rows(run).size() == 10);
  REQUIRE(cli({"checkpoint", "rewind", run, "--step", "6"}).status == 0);  // 24 samples
  Outcome on = cli({file, run_dir, "-q", "train.global_batch_size=2"});
  REQUIRE_MESSAGE(on.status == 0, on.err);
  CHECK(setting(run, "train.steps") == "14");  // 16 samples in 8 steps more
  CHECK(rows(run).size() == 14);
  // Fewer epochs than were made already: nothing is left to do.
  Outcome past = cli({file, run_dir, "train.global_batch_size=1", "train.epochs=0.1"});
  CHECK_MESSAGE(past.status == 0, past.err);
  CHECK_MESSAGE(has(past.err, "nothing to do"), past.err);
  // 39 samples of 8 tokens: 16 steps of 2 need one pass, but after 9 steps of 4 the rest needs
  // another one.
  std::string lines;
  for (int i = 0; i < 32; ++i) lines += "abcdefghi\n";
  const std::string data = (scratch / "data").string();
  Outcome prepared = cli({"data", "prepare", "-i", scratch.write("a.txt", lines), "-o", data, "-t",
                          "byte", "--split-on", "lines"});
  REQUIRE_MESSAGE(prepared.status == 0, prepared.err);
  const std::string steps = scratch.write(
      "s.yaml",
      quant_recipe(
          "type: llama, layers: 1, hidden_size: 16, heads: 2, ffn_hidden_size: 32, seq_length: 8",
          "tokenizer: byte\ntrain: {steps: 16}\nscheduler: {warmup_steps: 2}\nvalidation: {steps: "
          "0}\n",
          "{type: gpt, path: " + data + ", split: '1,0,0'}"));
  const std::string other = (scratch / "other").string();
  const Words words = {steps, "run.dir=" + other, "-q", "checkpoint.interval=3",
                       "checkpoint.keep=0"};
  Outcome whole = cli(with(words, {"train.global_batch_size=4"}));
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  REQUIRE(cli({"checkpoint", "rewind", other, "--step", "9"}).status == 0);
  Outcome smaller = cli(with(words, {"train.global_batch_size=2"}));
  CHECK_MESSAGE(smaller.status == 0, smaller.err);
  CHECK(rows(other).size() == 16);
}

TEST_CASE("train.epochs stands in the place of train.steps") {
  Scratch scratch("mtrain-epochs-check");
  const std::string epochs = scratch.write("e.yaml", recipe_of_length("epochs: 2")),
                    steps = scratch.write("s.yaml", recipe_of_length("steps: 20"));
  Outcome shown = cli({"check", epochs, "--resolved"});
  CHECK_MESSAGE(shown.status == 0, shown.err);
  CHECK(has(shown.out, "  epochs: 2.0\n"));
  CHECK_FALSE(has(shown.out, "  steps: 0\n  micro"));
  const std::string reloaded = scratch.write("again.yaml", shown.out);
  CHECK(cli({"check", reloaded, "--resolved"}).out == shown.out);
  // A share of steps that are not counted yet is not shown as none.
  const Outcome share = cli({"check", epochs, "scheduler.warmup_steps=5%", "--resolved"});
  CHECK_MESSAGE(has(share.out, "warmup_steps: 5%\n"), share.out);
  CHECK(cli({"check", scratch.write("share.yaml", share.out), "--resolved"}).out == share.out);
  CHECK(
      cli({"config", "show", "scheduler.warmup_steps", epochs, "scheduler.warmup_steps=5%"}).out ==
      "5%\n");
  CHECK(has(cli({"check", steps, "scheduler.warmup_steps=5%", "--resolved"}).out,
            "warmup_steps: 5%\n"));
  CHECK(has(cli({"config", "show", "--minimal", epochs, "scheduler.warmup_steps=5%"}).out,
            "warmup_steps: 5%\n"));
  CHECK(
      has(cli({"config", "why", "scheduler.warmup_steps", steps, "scheduler.warmup_steps=5%"}).out,
          "= 1 "));
  CHECK(has(cli({"check", epochs}).out, "2 epochs in steps of 1 x 8 tokens"));
  CHECK(has(cli({"check", steps, "train.epochs=1"}).out, "1 epoch in"));
  CHECK(has(cli({"check", steps, "train.epochs=1"}).out,
            "instead of train.steps=20 (" + steps + ":"));
  CHECK(has(cli({"check", steps, "train.steps=7", "train.epochs=1"}).out,
            "instead of train.steps=7 (command line, argument 3)"));
  // Whoever asks for the replaced one learns which one is there.
  CHECK(has(cli({"config", "show", "train.steps", steps, "train.epochs=1"}).err,
            "the recipe sets train.epochs instead"));
  CHECK(has(cli({"config", "show", "train.epochs", steps}).err,
            "the recipe sets train.steps instead"));
  // The later argument counts, and says whose place it takes.
  Outcome later = cli({"check", steps, "train.epochs=1", "train.steps=7"});
  CHECK(has(later.out, "7 steps of"));
  CHECK(has(later.out, "instead of train.epochs=1 (command line, argument 3)"));
  later = cli({"train", steps, "train.epochs=1", "train.steps=1",
               "run.dir=" + (scratch / "later").string()});
  CHECK_MESSAGE(has(later.err,
                    "train.steps=1 (command line, argument 4), instead of train.epochs=1 (command "
                    "line, argument 3)"),
                later.err);
  later = cli({"train", steps, "train.epochs=1", "train.steps=0"});
  CHECK(later.status == 10);
  CHECK_MESSAGE(has(later.err,
                    "train.steps=0 replaces train.epochs=1 (command line, argument 3), so nothing "
                    "would be trained"),
                later.err);
  CHECK_FALSE(has(cli({"check", epochs}).out, "instead of"));
  CHECK(has(cli({"check", epochs, "train.steps=9"}).out, "9 steps of"));
  Outcome neither =
      cli({"check", scratch.write("n.yaml", recipe_of_length("micro_batch_size: 1"))});
  CHECK(neither.status == 10);
  CHECK(has(neither.err, "unless train.epochs is set"));
  CHECK(cli({"check", scratch.write("b.yaml", recipe_of_length("epochs: 1, steps: 1"))}).status ==
        10);
  Outcome none = cli({"check", epochs, "train.epochs=0"});
  CHECK(none.status == 10);
  CHECK_MESSAGE(has(none.err, "train.epochs"), none.err);
  CHECK_MESSAGE(has(none.err, "> 0"), none.err);
  CHECK(has(cli({"config", "explain", "train.epochs"}).out, "instead of"));
  CHECK(has(cli({"bench", epochs, "--steps", "30", "--warmup", "1", "--plain"}).err,
            "train.steps is 20"));
}
