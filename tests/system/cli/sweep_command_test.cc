// Sweeps, files of overrides and raw pairs on the command line.
#include <doctest/doctest.h>

#include "shell.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

TEST_CASE("-f FILE and --set KEY VALUE, in the order of the command line") {
  Scratch scratch("mtrain-set");
  std::string r = scratch.write("r.yaml", tiny_recipe());
  std::string file = scratch.write("more.txt", "# ours\n\ntrain.steps=11\noptimizer.lr=1e-3\n");
  auto steps = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"config", "show", r, "train.steps"});
    Outcome outcome = cli(words);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    return outcome.out;
  };
  CHECK(steps({"-f", file}) == "11\n");
  CHECK(steps({"-f", file, "train.steps=12"}) == "12\n");
  CHECK(steps({"train.steps=12", "-f", file}) == "11\n");
  CHECK(steps({"train.steps=12", "--set", "train.steps", "13", "-f", file, "train.steps=14"}) == "14\n");
  CHECK(steps({"-f", file, "--set", "train.steps", "13"}) == "13\n");
  Outcome name = cli({"config", "show", r, "run.name", "--set", "run.name", "--odd, [name]=${x}"});
  CHECK_MESSAGE(name.out == "\"--odd, [name]=\\\\${x}\"\n", name.out, name.err);
  scratch.write("more.txt", "train.steps=11\ntrain.stepz=1\n");
  Outcome fault = cli({"check", r, "-f", file});
  CHECK(fault.status == 10);
  CHECK_MESSAGE(has(fault.err, "more.txt:2:1"), fault.err);
  CHECK(cli({"check", r, "-f", "/nowhere"}).status == 10);
  CHECK(cli({"check", r, "--set", "train.steps"}).status == 2);
  Outcome bare = cli({r, "--set", "run.dir", (scratch / "r").string(), "--set", "train.steps", "0", "-q"});
  CHECK_MESSAGE(bare.status == 0, bare.err);
  // Options may stand before a bare recipe.
  Outcome before = cli({"-q", "--set", "run.dir", (scratch / "q").string(), "-f",
                        scratch.write("n.txt", "train.steps=0\n"), r});
  CHECK_MESSAGE(before.status == 0, before.err);
  CHECK(fs::exists(scratch / "q"));
}

TEST_CASE("check -m validates and lists every trial") {
  Scratch scratch("mtrain-sweep");
  std::string r = scratch.write("r.yaml", tiny_recipe() + "sweep: {rng.seed: 'range(1,3)'}\n");
  Outcome good = cli({"check", r, "-m", "--list", "optimizer.lr=1e-3,2e-3"});
  CHECK_MESSAGE(good.status == 0, good.err);
  CHECK_MESSAGE(has(good.out, "trial 0: "), good.out);
  CHECK_MESSAGE(has(good.out, "4 trials, 0 faulty"), good.out);
  CHECK(has(good.out, "optimizer.lr=1e-3"));
  CHECK(has(good.out, "rng.seed=2"));
  Outcome bad = cli({"check", r, "-m", "train.micro_batch_size=1,0", "rng.seed=1"});
  CHECK(bad.status == 10);
  CHECK_MESSAGE(has(bad.err, "trial 1: train.micro_batch_size=0"), bad.err);
  CHECK(has(bad.out, "2 trials, 1 faulty"));
  CHECK(cli({"check", r, "optimizer.lr=1e-3,2e-3"}).status == 10);
}

TEST_CASE("train -m runs the trials one after another, each in a folder of its own") {
  Scratch scratch("mtrain-multirun");
  std::string r = scratch.write("r.yaml", tiny_recipe());
  std::vector<std::string> words = {
      r, "-m", "-q", "train.steps=6", "rng.seed=1,2", "run.name='t${run:trial}'"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return cli(more);
  };
  Outcome good = with({"run.dir=" + (scratch / "s").string()});
  CHECK_MESSAGE(good.status == 0, good.err);
  CHECK(has(slurp(scratch / "s/0/config/resolved.yaml"), "name: t0"));
  CHECK(has(slurp(scratch / "s/1/config/resolved.yaml"), "name: t1"));
  CHECK(digest(scratch / "s/0") != digest(scratch / "s/1"));
  std::string one = "run.dir=" + (scratch / "one").string();
  REQUIRE(cli({r, "-q", "train.steps=6", "rng.seed=2", one}).status == 0);
  CHECK(digest(scratch / "s/1") == digest(scratch / "one"));

  // Faulty trials are told before any runs; a failing one ends the sweep unless told otherwise.
  CHECK(with({"run.dir=" + (scratch / "f").string(), "train.micro_batch_size=0,1"}).status == 10);
  CHECK_FALSE(fs::exists(scratch / "f"));
  Outcome kept = with({"run.dir=" + (scratch / "k").string(), "train.micro_batch_size=0,1", "--keep-going"});
  CHECK(kept.status == 10);
  CHECK_FALSE(fs::exists(scratch / "k/0"));
  CHECK(fs::exists(scratch / "k/1/checkpoints/step-6"));
  Outcome stopped = with({"run.dir=" + (scratch / "x").string(), "model.init_from='',/nowhere"});
  CHECK(stopped.status == 12);
}
