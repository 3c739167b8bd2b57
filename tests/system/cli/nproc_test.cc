// mtrain --nproc: the ranks of a job as processes that mtrain starts itself.
#include <doctest/doctest.h>

#include "shell.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

std::string job_recipe(const Scratch& scratch) {
  return scratch.write(
      "job.yaml",
      quant_recipe(
          "type: llama, layers: 2, hidden_size: 32, heads: 4, ffn_hidden_size: 80, seq_length: 16",
          "train: {steps: 12, global_batch_size: 4}\ncheckpoint: {interval: 4}\n"
          "dist: {silence_seconds: 120}\n"));
}

/// Without a launcher in the PATH, and without the secret of a user.
const Words kBare = {"PATH=/nowhere", "HOME=/nowhere", "XDG_CONFIG_HOME=/nowhere"};

}  // namespace

TEST_CASE("--nproc needs no launcher, and trains what threads train") {
  Scratch scratch("mtrain-nproc");
  const std::string job = job_recipe(scratch);
  train(job, scratch / "threads", {"dist.nproc=2"});
  Outcome out = cli({"--nproc", "2", job, "run.dir=" + (scratch / "processes").string()}, kBare);
  REQUIRE_MESSAGE(out.status == 0, out.err);
  CHECK(has(out.out, "2 ranks (tcp)"));
  CHECK(digest(scratch / "processes") == digest(scratch / "threads"));
  Outcome said = cli(
      {job, "--nproc=2", "dist.comm=tcp", "-q", "run.dir=" + (scratch / "said").string()}, kBare);
  CHECK_MESSAGE(said.status == 0, said.err);
  Outcome spelled = cli({"--nproc", "2", "-q", "train", job, "dist.nproc=2",
                         "run.dir=" + (scratch / "spelled").string()},
                        kBare);
  CHECK_MESSAGE(spelled.status == 0, spelled.err);
  CHECK(digest(scratch / "spelled") == digest(scratch / "threads"));
}

TEST_CASE("ranks number the arguments as they were typed, and --nproc has given its settings") {
  Scratch scratch("mtrain-nproc-arguments");
  const std::string job = job_recipe(scratch), dir = "run.dir=" + (scratch / "a").string();
  REQUIRE(cli({"--nproc", "2", job, "train.steps=3", dir, "-q"}, kBare).status == 0);
  Outcome more = cli({"--nproc", "2", job, "train.steps=5", dir, "optimizer.lr=1e-4"}, kBare);
  CHECK_MESSAGE(more.status == 0, more.err);
  CHECK_MESSAGE(has(more.err, "(command line, argument 6"), more.err);  // optimizer.lr
  REQUIRE(cli({job, "train.steps=6", dir, "dist.nproc=2", "-q"}, kBare).status == 0);
  const std::string shown = cli({"runs", "show", (scratch / "a").string()}, kBare).out;
  CHECK_MESSAGE(has(shown, "train.steps: 3 -> 5   (command line, argument 4"), shown);
  REQUIRE(cli({"--nproc=2", job, dir, "train.steps=7", "-q"}, kBare).status == 0);
  const std::string again = cli({"runs", "show", (scratch / "a").string()}, kBare).out;
  CHECK_MESSAGE(has(again, "dist.comm: null -> tcp   (--nproc"), again);
  CHECK_MESSAGE(has(again, "train.steps: 6 -> 7   (command line, argument 4"), again);
}

TEST_CASE("a run of several processes is repeated by as many") {
  Scratch scratch("mtrain-nproc-rerun");
  const std::string job = job_recipe(scratch), run = (scratch / "a").string();
  REQUIRE(cli({"--nproc", "2", job, "-q", "run.dir=" + run}, kBare).status == 0);
  Outcome alone = cli({"rerun", run}, kBare);
  CHECK(alone.status == 10);
  CHECK_MESSAGE(has(alone.err, "mtrain --nproc 2 rerun " + run), alone.err);
  Outcome before = cli({"--nproc", "2", "rerun", run}, kBare);
  CHECK_MESSAGE(before.status == 0, before.err);
  CHECK(digest(scratch / "a-rerun") == digest(run));
  CHECK_FALSE(fs::exists(scratch / "a-rerun-2"));
  Outcome after =
      cli({"rerun", run, "--nproc=2", "-q", "run.dir=" + (scratch / "b").string()}, kBare);
  CHECK_MESSAGE(after.status == 0, after.err);
  CHECK(digest(scratch / "b") == digest(run));
  Outcome threads =
      cli({"rerun", run, "dist.comm=thread", "-q", "run.dir=" + (scratch / "t").string()}, kBare);
  CHECK_MESSAGE(threads.status == 0, threads.err);
  CHECK(digest(scratch / "t") == digest(run));
  CHECK(cli({"--nproc", "2", "check", job}).status == 2);
}

TEST_CASE("ranks that a launcher of processes started repeat a run in one new folder") {
  Scratch scratch("mtrain-launched-rerun");
  const std::string job = job_recipe(scratch), run_dir = (scratch / "a").string();
  REQUIRE(cli({"--nproc", "2", job, "-q", "run.dir=" + run_dir}, kBare).status == 0);
  const std::string rank = " " + mtrain_binary() + " rerun -q " + run_dir;
  Outcome out =
      run({.arguments = {"/bin/sh", "-c", "RANK=1" + rank + " & RANK=0" + rank + " && wait $!"},
           .environment = {"WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                           "MASTER_PORT=" + std::to_string(20000 + ::getpid() % 10000)}});
  CHECK_MESSAGE(out.status == 0, out.err);
  CHECK(digest(scratch / "a-rerun") == digest(run_dir));
  CHECK_FALSE(fs::exists(scratch / "a-rerun-2"));
}

TEST_CASE("settings of -f from a pipe reach every process, and every part of a repeated run") {
  Scratch scratch("mtrain-nproc-pipe");
  const std::string job = job_recipe(scratch), mtrain = mtrain_binary() + " -q ";
  auto bash = [&](const std::string& words) {
    Outcome out = run({.arguments = {"/bin/bash", "-c",
                                     "cd " + scratch.path().string() + " && " + mtrain + words}});
    CHECK_MESSAGE(out.status == 0, words, out.err);
  };
  bash("--nproc 2 " + job + " run.dir=a -f <(printf 'train.steps=3\\noptimizer.lr=5e-3\\n')");
  CHECK(rows(scratch / "a").size() == 3);
  CHECK(has(slurp(scratch / "a/config/resolved.yaml"), "lr: 0.005"));
  bash("--nproc 2 rerun a run.dir=b -f <(echo train.steps=2)");
  CHECK(rows(scratch / "b").size() == 2);
  bash(job + " run.dir=c train.steps=2");
  bash("rerun c ++run.dir=d -f <(echo optimizer.lr=3e-3)");
  CHECK(has(slurp(scratch / "d/config/resolved.yaml"), "lr: 0.003"));
}

TEST_CASE("a repeated run has the folder that run.dir gives, in any notation, or one of its own") {
  Scratch scratch("mtrain-nproc-folder");
  const std::string job = job_recipe(scratch);
  REQUIRE(cli_in(scratch.path(), "--nproc 2 " + job + " -q run.dir=a train.steps=1").status == 0);
  for (const std::string folder : {"++run.dir=b", "'run={dir: c}'"}) {
    Outcome out = cli_in(scratch.path(), "--nproc 2 rerun a -q " + folder);
    CHECK_MESSAGE(out.status == 0, out.err);
  }
  for (const char* folder : {"b", "c"}) CHECK(fs::exists(scratch / folder));
  CHECK_FALSE(fs::exists(scratch / "a-rerun"));
  Outcome within = cli_in(scratch / "a", "--nproc 2 rerun . -q");
  CHECK_MESSAGE(within.status == 0, within.err);
  CHECK(fs::exists(scratch / "a-rerun"));
  CHECK_FALSE(fs::exists(scratch / "a/a-rerun"));
}

TEST_CASE("--nproc says what does not go together") {
  Scratch scratch("mtrain-nproc-words");
  const std::string job = job_recipe(scratch);
  Outcome threads = cli({"--nproc", "2", job, "dist.comm=thread"});
  CHECK(threads.status == 2);
  CHECK(has(threads.err, "dist.nproc=2"));
  Outcome numbers =
      cli({"--nproc", "2", job, "dist.nproc=4", "run.dir=" + (scratch / "numbers").string()});
  CHECK(numbers.status == 2);
  CHECK_MESSAGE(has(numbers.err, "--nproc is 2, and dist.nproc is 4"), numbers.err);
  CHECK(has(numbers.err, "argument 4"));
  CHECK(count(numbers.err, "mtrain: error[") == 1);
  CHECK_FALSE(fs::exists(scratch / "numbers"));
  Outcome mpi = cli({"--nproc", "2", job, "dist.comm=mpi"}, kBare);
  CHECK(mpi.status != 0);
  CHECK(has(mpi.err, "mpi"));
  CHECK(cli({"--nproc", "2", job}, {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1"}).status ==
        2);
  Outcome doctor = cli({"doctor", "--json"}, kBare);
  CHECK(has(doctor.out, "mtrain --nproc N"));
  CHECK(has(doctor.out, "not found: torchrun, srun, mpirun"));
}

TEST_CASE("--nproc: each message comes once") {
  Scratch scratch("mtrain-nproc-messages");
  const std::string job = job_recipe(scratch);
  Outcome faulty = cli({"--nproc", "3", job, "optimizer.lrr=1"});
  CHECK(faulty.status == 10);
  CHECK(has(faulty.err, "optimizer.lrr"));
  CHECK(count(faulty.err, "mtrain: error") == 1);
  // What only the ranks can see: a file in the place of a folder, data that are not there.
  const std::string file = scratch.write("file", "");
  for (const std::string& word :
       {"run.dir=" + file + "/run", std::string("dataset={type: gpt, path: /nowhere/data}")}) {
    Outcome out = cli({"--nproc", "2", job, word});
    INFO(out.err);
    CHECK(out.status != 0);
    CHECK(count(out.err, "error") == 1);
  }
  Outcome warned = cli(
      {"--nproc", "2", job, "scheduler.warmup_steps=50", "run.dir=" + (scratch / "w").string()});
  CHECK_MESSAGE(warned.status == 0, warned.err);
  CHECK(count(warned.err, "warmup (50 steps) lasts until the decay") == 1);
}

TEST_CASE(
    "a layout of several ranks: check says for how many it is right, and training how to start "
    "them") {
  Scratch scratch("mtrain-nproc-layout");
  const std::string job = job_recipe(scratch), folder = "run.dir=" + (scratch / "run").string();
  Outcome checked = cli({"check", job, "dist.tp=2"});
  CHECK_MESSAGE(checked.status == 0, checked.err);
  CHECK_MESSAGE(has(checked.out, "for 2 ranks: start them with `mtrain --nproc 2 "), checked.out);
  CHECK(has(cli({"check", job, "dist.tp=2", "dist.nproc=4"}).out, "for 4 ranks\n"));
  CHECK_FALSE(has(cli({"check", job}).out, "rank"));
  CHECK(cli({"check", job, "dist.tp=2", "dist.nproc=1"}).status == 10);
  Outcome alone = cli({job, "dist.tp=2", folder});
  CHECK(alone.status == 10);
  for (const char* part : {"the number of ranks, 1, is not a multiple of tp x pp x cp = 2",
                           "mtrain --nproc N", "dist.nproc=2"})
    CHECK_MESSAGE(has(alone.err, part), alone.err);
  CHECK_FALSE(fs::exists(scratch / "run"));
  Outcome three = cli({"--nproc", "3", job, "dist.tp=2", folder});
  CHECK(three.status == 10);
  CHECK_MESSAGE(!has(three.err, "dist.nproc=2"), three.err);  // which --nproc would contradict
  Outcome two = cli({"--nproc", "2", job, "-q", "dist.tp=2", folder}, kBare);
  CHECK_MESSAGE(two.status == 0, two.err);
}

TEST_CASE("--nproc: a job that fails before its first step leaves no folder") {
  Scratch scratch("mtrain-nproc-nothing");
  const std::string job = job_recipe(scratch);
  scratch.write("text.txt", std::string(400, 'a') + "\n");
  REQUIRE(cli_in(scratch.path(), "data prepare -i text.txt -o data -t byte -q").status == 0);
  for (int i = 0; i < 3; ++i) {  // which rank fails first is a race
    Outcome out =
        cli({"--nproc", "2", job, "-q",
             "dataset={type: gpt, path: " + (scratch / "data").string() + ", split: '1,0,0'}",
             "tokenizer=byte", "validation.steps=1", "run.dir=" + (scratch / "run").string()});
    CHECK_MESSAGE(out.status == 11, out.err);
    CHECK_FALSE(fs::exists(scratch / "run"));
  }
}

TEST_CASE("--nproc hands signals on: the ranks save and stop, and the same command goes on") {
  Scratch scratch("mtrain-nproc-signals");
  const std::string job = job_recipe(scratch);
  train(job, scratch / "whole", {"dist.nproc=2"});
  for (int signal : {SIGTERM, SIGINT}) {
    const fs::path folder = scratch / std::to_string(signal);
    Outcome stopped = run(
        {.arguments = {mtrain_binary(), "--nproc", "2", job, "-q", "run.dir=" + folder.string()},
         .environment = {"MTRAIN_FAULT=train.step:0:delay=300"},
         .signal_after = 0.01,
         .signal_file = folder / "metrics.jsonl",
         .signal = signal});
    CHECK_MESSAGE(stopped.status == 128 + signal, stopped.err);
    CHECK(cli({"checkpoint", "verify", folder.string()}).status == 0);
    Outcome rest = cli({"--nproc", "2", job, "-q", "run.dir=" + folder.string()});
    CHECK_MESSAGE(rest.status == 0, rest.err);
    CHECK(digest(folder) == digest(scratch / "whole"));
  }
}

TEST_CASE("--nproc: a rank that dies ends the job with its status, and nothing is left") {
  Scratch scratch("mtrain-nproc-death");
  const std::string job = job_recipe(scratch);
  Outcome killed = cli({"--nproc", "2", job, "-q", "run.dir=" + (scratch / "killed").string()},
                       {"MTRAIN_FAULT=train.step:7:kill"});
  INFO(killed.err);
  CHECK(killed.status == 15);
  CHECK(has(killed.err, "was ended by signal 9"));
  Outcome rest = cli({"--nproc", "2", job, "-q", "run.dir=" + (scratch / "killed").string()});
  CHECK_MESSAGE(rest.status == 0, rest.err);
}

TEST_CASE("tasks of srun that do not know each other are warned of") {
  Scratch scratch("mtrain-srun");
  const std::string job = job_recipe(scratch),
                    message = "srun started 2 tasks, but each trains on its";
  const Words step = {"SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"};
  Outcome alone = cli({job, "-q", "run.dir=" + (scratch / "alone").string()}, step);
  CHECK(alone.status == 0);
  CHECK_MESSAGE(has(alone.err, message), alone.err);
  // The variables of a batch script: no step has begun.
  Outcome batch = cli({job, "-q", "run.dir=" + (scratch / "batch").string()},
                      {"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"});
  CHECK(batch.status == 0);
  CHECK_FALSE(has(batch.err, message));
}
