// A run's folder and its checkpoints belong together: no change of run.dir or checkpoint.dir
// restarts a run, continues another one, or lets two jobs write to one.
#include <doctest/doctest.h>

#include "shell.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

class Runs {
 public:
  explicit Runs(const std::string& name) : scratch_(name) {
    scratch_.write("r.yaml", tiny_recipe());
  }
  Outcome train(const std::string& words) const {
    return cli_in(scratch_.path(), "r.yaml -q validation.steps=0 checkpoint.keep=0 " + words);
  }
  Outcome mtrain(const std::string& words) const { return cli_in(scratch_.path(), words); }
  fs::path operator/(const std::string& path) const { return scratch_ / path; }

 private:
  Scratch scratch_;
};

/// The outcome is a refusal of status 12 that names `parts` and leaves the run's metrics alone.
void check_refused(const Outcome& out, const Words& parts, const fs::path& run, size_t steps) {
  CHECK_MESSAGE(out.status == 12, out.err);
  for (const auto& part : parts) CHECK_MESSAGE(has(out.err, part), out.err);
  CHECK(rows(run).size() == steps);
}

}  // namespace

TEST_CASE("another checkpoint.dir neither restarts a run nor continues another trajectory of it") {
  Runs runs("mtrain-ties-dir");
  REQUIRE(runs.train("run.dir=a train.steps=10").status == 0);
  const std::string metrics = slurp(runs / "a/metrics.jsonl");
  check_refused(
      runs.train("run.dir=a checkpoint.dir=ck train.steps=5"),
      {"a continues from the checkpoints in a/checkpoints, whose newest is of step 10",
       "ck, which contains no checkpoint", "checkpoint.dir=a/checkpoints", "another run.dir"},
      runs / "a", 10);
  CHECK_FALSE(fs::exists(runs / "ck"));
  CHECK_FALSE(fs::exists(runs / "a/config/002"));
  // A copy of older checkpoints would take the run back without a word.
  fs::create_directory(runs / "ck");
  fs::copy(runs / "a/checkpoints/step-5", runs / "ck/step-5", fs::copy_options::recursive);
  check_refused(runs.train("run.dir=a checkpoint.dir=ck train.steps=20"),
                {"whose newest is of step 10", ", which contains only step 5", "checkpoint rewind"},
                runs / "a", 10);
  // The checkpoints of another run, also of a copy that was continued.
  REQUIRE(runs.train("run.dir=b train.steps=15").status == 0);
  check_refused(runs.train("run.dir=a checkpoint.dir=b/checkpoints train.steps=20"),
                {"b/checkpoints contains the checkpoints of another run", "/b: no invocation of a",
                 "saved its step 15", "model.init_from=b/checkpoints/step-15"},
                runs / "a", 10);
  fs::copy(runs / "a", runs / "c", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  REQUIRE(runs.train("run.dir=c train.steps=15").status == 0);
  check_refused(runs.train("run.dir=a checkpoint.dir=c/checkpoints train.steps=20"),
                {"c/checkpoints contains the checkpoints of another run"}, runs / "a", 10);
  CHECK(slurp(runs / "a/metrics.jsonl") == metrics);
  // The whole folder of checkpoints may move, and so may the run.
  fs::remove_all(runs / "ck");
  fs::rename(runs / "a/checkpoints", runs / "ck");
  fs::rename(runs / "a", runs / "d");
  Outcome moved = runs.train("run.dir=d checkpoint.dir=ck train.steps=15");
  CHECK_MESSAGE(moved.status == 0, moved.err);
  CHECK(rows(runs / "d").size() == 15);
  Outcome again = runs.mtrain("rerun d -q");
  CHECK_MESSAGE(again.status == 0, again.err);
  CHECK(digest(runs / "d-rerun") == digest(runs / "ck"));
  Json history = Json::parse(runs.mtrain("runs show d --json").out).at("invocations");
  REQUIRE(history.size() == 2);
  CHECK(history[0].at("first_step") == 1);
  CHECK(history[0].at("last_step") == 10);
  CHECK(history[1].at("first_step") == 11);
  CHECK(history[1].at("last_step") == 15);
}

TEST_CASE("a run whose checkpoints are gone is not restarted, one that never had one is") {
  Runs runs("mtrain-ties-gone");
  REQUIRE(runs.train("run.dir=a checkpoint.dir=ck train.steps=10").status == 0);
  fs::rename(runs / "ck", runs / "kept");
  check_refused(runs.train("run.dir=a checkpoint.dir=ck"),
                {"a contains the record of a run of 10 steps, but ck contains no checkpoint"},
                runs / "a", 10);
  check_refused(runs.train("run.dir=a"), {"its last invocation saved them in ", "/ck"}, runs / "a",
                10);
  fs::remove_all(runs / "a/config");
  check_refused(runs.train("run.dir=a"), {"a/metrics.jsonl contains steps of a run"}, runs / "a",
                10);
  Command killed{.arguments = {mtrain_binary(), (runs / "r.yaml").string(), "-q",
                               "run.dir=" + (runs / "b").string(), "train.steps=10"},
                 .environment = {"MTRAIN_FAULT=train.step:3"}};
  CHECK(run(killed).status == 128 + SIGKILL);
  Outcome again = runs.train("run.dir=b train.steps=10");
  CHECK_MESSAGE(again.status == 0, again.err);
  CHECK_MESSAGE(has(again.err, "the last invocation of b ended before its first checkpoint"),
                again.err);
  CHECK(rows(runs / "b").size() == 10);
}

TEST_CASE("checkpoint.resume=never refuses a folder with anything of a run") {
  Runs runs("mtrain-ties-never");
  REQUIRE(runs.train("run.dir=a train.steps=10").status == 0);
  const std::string never = " checkpoint.resume=never train.steps=5";
  check_refused(runs.train("run.dir=a" + never), {"the checkpoint of step 10"}, runs / "a", 10);
  check_refused(runs.train("run.dir=a checkpoint.dir=ck" + never),
                {"a/checkpoints contains the checkpoint of step 10", "another run.dir"}, runs / "a",
                10);
  check_refused(runs.train("run.dir=b checkpoint.dir=a/checkpoints" + never),
                {"a/checkpoints contains the checkpoint of step 10"}, runs / "a", 10);
  fs::remove_all(runs / "a/checkpoints");
  check_refused(runs.train("run.dir=a" + never), {"a/config contains the record of a run"},
                runs / "a", 10);
  fs::remove_all(runs / "a/config");
  check_refused(runs.train("run.dir=a" + never), {"a/metrics.jsonl contains the metrics of a run"},
                runs / "a", 10);
  fs::remove(runs / "a/metrics.jsonl");
  Outcome empty = runs.train("run.dir=a" + never);
  CHECK_MESSAGE(empty.status == 0, empty.err);
}

TEST_CASE(
    "an entry of a map that changes the samples is refused by name, one that does not passes") {
  Runs runs("mtrain-ties-columns");
  std::string recipe = tiny_recipe(), records;
  recipe.replace(recipe.find("dataset: mock\n"), 14,
                 "tokenizer: byte\ndataset: {type: sft, path: x.jsonl, split: '1'}\n");
  for (int i = 0; i < 20; ++i)
    records += R"({"prompt": "a", "completion": "bc", "question": "d"})"
               "\n";
  write_at(runs / "r.yaml", recipe);
  write_at(runs / "x.jsonl", records);
  REQUIRE(runs.train("run.dir=a train.steps=2").status == 0);
  check_refused(runs.train("run.dir=a train.steps=4 dataset.columns={prompt:question}"),
                {"dataset.columns.prompt: absent -> question   (command line, argument"},
                runs / "a", 2);
  const Outcome same = runs.train("run.dir=a train.steps=4 dataset.columns={prompt:prompt}");
  CHECK_MESSAGE(same.status == 0, same.err);
  REQUIRE(runs.train("run.dir=b train.steps=2 dataset.columns={prompt:question}").status == 0);
  check_refused(runs.train("run.dir=b train.steps=4"),
                {"dataset.columns.prompt: question -> absent   (before: command line"}, runs / "b",
                2);
}

TEST_CASE("two jobs in one run.dir: the second is refused, wherever its checkpoints are") {
  Runs runs("mtrain-ties-lock");
  const std::string r = (runs / "r.yaml").string(), run_dir = "run.dir=" + (runs / "a").string(),
                    ck = "checkpoint.dir=" + (runs / "ck").string();
  Outcome second, shared;
  Outcome first = run({.arguments = {mtrain_binary(), r, run_dir, ck, "-q", "train.steps=10"},
                       .environment = {"MTRAIN_FAULT=train.step:3:stop"},
                       .while_stopped = [&](pid_t) {
                         second = runs.train("run.dir=a checkpoint.dir=other train.steps=10");
                         shared = runs.train("run.dir=b checkpoint.dir=ck train.steps=10");
                       }});
  CHECK_MESSAGE(first.status == 0, first.err);
  CHECK_MESSAGE(second.status == 18, second.err);
  CHECK_MESSAGE(has(second.err, "a is in use by another job (pid "), second.err);
  CHECK_FALSE(fs::exists(runs / "other"));
  CHECK_MESSAGE(shared.status == 18, shared.err);
  CHECK_MESSAGE(has(shared.err, "ck is in use by another job (pid "), shared.err);
  CHECK_FALSE(fs::exists(runs / "b"));
  CHECK(rows(runs / "a").size() == 10);
  // One folder for both has one lock.
  Outcome same = runs.train("run.dir=c checkpoint.dir=c train.steps=5");
  CHECK_MESSAGE(same.status == 0, same.err);
}

TEST_CASE("two jobs start at the same moment: the refused one deletes nothing") {
  Runs runs("mtrain-ties-moment");
  const std::string r = (runs / "r.yaml").string(), run_dir = "run.dir=" + (runs / "a").string();
  Outcome winner;
  // The first job has seen that there is no folder yet, and stops before it takes the lock.
  Outcome loser =
      run({.arguments = {mtrain_binary(), r, run_dir, "-q", "train.steps=10"},
           .environment = {"MTRAIN_FAULT=run.lock:1:stop"},
           .while_stopped = [&](pid_t stopped) {
             winner = run({.arguments = {mtrain_binary(), r, run_dir, "-q", "train.steps=10"},
                           .environment = {"MTRAIN_FAULT=train.step:3:stop"},
                           .while_stopped = [&](pid_t) {
                             ::kill(stopped, SIGCONT);
                             await_end(stopped, 60);
                           }});
           }});
  CHECK_MESSAGE(loser.status == 18, loser.err);
  CHECK_MESSAGE(winner.status == 0, winner.err);
  CHECK(rows(runs / "a").size() == 10);
  CHECK(fs::exists(runs / "a/config/001/resolved.yaml"));
}

TEST_CASE("two runs cannot share one checkpoint.dir") {
  Runs runs("mtrain-ties-shared");
  REQUIRE(runs.train("run.dir=a checkpoint.dir=ck train.steps=10").status == 0);
  Outcome other = runs.train("run.dir=b checkpoint.dir=ck train.steps=20");
  CHECK_MESSAGE(other.status == 12, other.err);
  CHECK_MESSAGE(has(other.err, "ck contains the checkpoints of another run"), other.err);
  CHECK_MESSAGE(has(other.err, "no invocation of b saved its step 10"), other.err);
  CHECK_MESSAGE(has(other.err, "to continue that run: run.dir="), other.err);
  CHECK_FALSE(fs::exists(runs / "b"));
  // A fork: copied checkpoints in a new run. Its first steps are not in its history.
  fs::create_directory(runs / "c");
  fs::copy(runs / "ck", runs / "c/checkpoints", fs::copy_options::recursive);
  REQUIRE(runs.train("run.dir=c train.steps=15").status == 0);
  Outcome again = runs.mtrain("rerun c -q");
  CHECK_MESSAGE(again.status == 0, again.err);
  CHECK_MESSAGE(has(again.err, "its first 10 steps were trained, because its history begins after"),
                again.err);
  CHECK_FALSE(has(again.err, "older version"));
}
