// What a run's folder keeps of each invocation, how it is shown, and that rerun repeats all of it.
#include <doctest/doctest.h>

#include <set>

#include "mtrain/checkpoint/run_lock.h"
#include "shell.h"
#include "training_run.h"

using mtrain::RunLock;
using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

Json facts(const fs::path& run, const std::string& record) {
  return Json::parse(slurp(run / "config" / record / "invocation.json"));
}

std::vector<std::string> losses_of_run(const fs::path& run) {
  std::vector<std::string> out;
  for (const auto& row : rows(run)) out.push_back(row.at("loss").dump());
  return out;
}

size_t records(const fs::path& run) {
  size_t n = 0;
  for (const auto& entry : fs::directory_iterator(run / "config"))
    n += fs::is_directory(entry.symlink_status()) ? 1 : 0;
  return n;
}

const std::string kNames =
    "recipe.yaml overrides.txt resolved.yaml provenance.json environment.json";

}  // namespace

TEST_CASE("a record for each invocation that trains, none for one that does nothing") {
  Scratch scratch("mtrain-history");
  const std::string r = scratch.write("r.yaml", tiny_recipe()),
                    run_dir = "run.dir=" + (scratch / "a").string();
  const fs::path a = scratch / "a";
  REQUIRE(cli({r, run_dir, "train.steps=20", "-q"}).status == 0);
  REQUIRE(cli({r, run_dir, "train.steps=40", "optimizer.lr=1e-3", "-q"}).status == 0);
  CHECK(facts(a, "001").at("first_step") == 0);
  CHECK(facts(a, "001").at("last_step") == 20);
  CHECK(facts(a, "002").at("first_step") == 20);
  CHECK(facts(a, "002").at("last_step") == 40);
  CHECK(has(slurp(a / "config/001/resolved.yaml"), "lr: 0.002"));
  CHECK(has(slurp(a / "config/002/resolved.yaml"), "lr: 0.001"));
  CHECK(has(slurp(a / "config/002/overrides.txt"), "optimizer.lr=1e-3\n"));
  const std::string before = slurp(a / "config/resolved.yaml");
  CHECK(before == slurp(a / "config/002/resolved.yaml"));
  Outcome nothing = cli({r, run_dir, "train.steps=20", "optimizer.lr=4e-3"});
  CHECK_MESSAGE(nothing.status == 0, nothing.err);
  CHECK_MESSAGE(has(nothing.err, "nothing to do"), nothing.err);
  CHECK(std::count(nothing.err.begin(), nothing.err.end(), '\n') == 1);
  CHECK_MESSAGE(nothing.out.empty(), nothing.out);
  CHECK(slurp(a / "config/resolved.yaml") == before);
  CHECK(records(a) == 2);
  std::istringstream names(kNames);
  for (std::string name; names >> name;)
    CHECK_MESSAGE(slurp(a / "config" / name) == slurp(a / "config/002" / name), name);
}

TEST_CASE("rerun: a setting that changed on a resume changes at the same step") {
  Scratch scratch("mtrain-replay");
  const std::string r = scratch.write("r.yaml", tiny_recipe());
  const fs::path a = scratch / "a";
  const std::string run_dir = "run.dir=" + a.string();
  REQUIRE(cli({r, run_dir, "train.steps=12", "-q"}).status == 0);
  REQUIRE(cli({r, run_dir, "train.steps=20", "optimizer.lr=5e-4", "-q"}).status == 0);
  REQUIRE(cli({r, run_dir, "train.steps=26", "optimizer.lr=5e-4", "optimizer.beta2=0.9", "-q"})
              .status == 0);
  Outcome again = cli({"rerun", a.string()});
  CHECK_MESSAGE(again.status == 0, again.err);
  REQUIRE(losses_of_run(a).size() == 26);
  CHECK(losses_of_run(scratch / "a-rerun") == losses_of_run(a));
  CHECK(digest(scratch / "a-rerun") == digest(a));
  CHECK_MESSAGE(has(again.err, "part 1 of 3"), again.err);
  // A checkpoint named instead of the run: the history is repeated up to its step.
  Outcome part = cli(
      {"rerun", (a / "checkpoints/step-20").string(), "run.dir=" + (scratch / "b").string(), "-q"});
  CHECK_MESSAGE(part.status == 0, part.err);
  CHECK(digest(scratch / "b/checkpoints/step-20") == digest(a / "checkpoints/step-20"));
  CHECK(losses_of_run(scratch / "b").size() == 20);
  // The same command again goes on, or has nothing to do.
  Outcome once_more = cli({"rerun", a.string(), "run.dir=" + (scratch / "a-rerun").string(), "-q"});
  CHECK_MESSAGE(once_more.status == 0, once_more.err);
  CHECK(digest(scratch / "a-rerun") == digest(a));
}

TEST_CASE("rerun of a checkpoint repeats the steps up to it, or as many as are asked for") {
  Scratch scratch("mtrain-replay-part");
  const std::string r = scratch.write("r.yaml", tiny_recipe());
  REQUIRE(
      cli_in(scratch.path(), "r.yaml -q run.dir=a train.steps=10 checkpoint.interval=5").status ==
      0);
  Outcome part = cli_in(scratch.path(), "rerun a/checkpoints/step-5 -q run.dir=b");
  CHECK_MESSAGE(part.status == 0, part.err);
  CHECK(losses_of_run(scratch / "b").size() == 5);
  CHECK(digest(scratch / "b/checkpoints/step-5") == digest(scratch / "a/checkpoints/step-5"));
  scratch.write("more.txt", "train.steps=7\n");
  for (const char* steps :
       {"train.steps=7", "train.max_steps=7", "'train={steps: 7}'", "-f more.txt"}) {
    const std::string words = std::string("rerun a/checkpoints/step-5 -q run.dir=c ") + steps;
    Outcome more = cli_in(scratch.path(), words);
    CHECK_MESSAGE(more.status == 0, more.err);
    CHECK(losses_of_run(scratch / "c").size() == 7);
    fs::remove_all(scratch / "c");
  }
}

TEST_CASE(
    "rerun of a run that train.max_minutes ended makes its steps, not its minutes, and goes into "
    "no other run's folder") {
  Scratch scratch("mtrain-rerun-minutes");
  const std::string r = scratch.write("r.yaml", tiny_recipe());
  const fs::path a = scratch / "a";
  auto part = [&](const char* lr) {
    return cli(
        {r, "-q", "run.dir=" + a.string(), "train.steps=1000", lr, "train.max_minutes=1e-9"});
  };
  for (const char* lr : {"optimizer.lr=1e-3", "optimizer.lr=1e-3", "optimizer.lr=3e-3"})
    REQUIRE(part(lr).status == 0);
  REQUIRE(losses_of_run(a).size() == 3);  // one step each
  Outcome again = cli({"rerun", a.string(), "-q"});
  REQUIRE_MESSAGE(again.status == 0, again.err);
  CHECK(losses_of_run(scratch / "a-rerun") == losses_of_run(a));
  CHECK(digest(scratch / "a-rerun") == digest(a));
  REQUIRE(
      cli({"rerun", a.string(), "-q", "train.steps=5", "run.dir=" + (scratch / "longer").string()})
          .status == 0);
  CHECK(losses_of_run(scratch / "longer").size() == 5);
  const std::string own = digest(a);
  Outcome into_itself = cli({"rerun", a.string(), "run.dir=" + a.string()});
  CHECK(into_itself.status == 12);
  CHECK_MESSAGE(has(into_itself.err, "is the run to be repeated"), into_itself.err);
  REQUIRE(cli({r, "-q", "run.dir=" + (scratch / "b").string(), "train.steps=2"}).status == 0);
  const std::string other = digest(scratch / "b");
  Outcome into_other = cli({"rerun", a.string(), "run.dir=" + (scratch / "b").string()});
  CHECK(into_other.status == 12);
  CHECK_MESSAGE(has(into_other.err, "holds a run of another configuration"), into_other.err);
  CHECK(digest(a) == own);
  CHECK(digest(scratch / "b") == other);
}

TEST_CASE(
    "rerun of a run that was killed and went on is one part, and of one from an older version says "
    "what it repeats") {
  Scratch scratch("mtrain-replay-killed");
  const std::string r = scratch.write("r.yaml", tiny_recipe());
  const fs::path a = scratch / "a";
  Command killed{.arguments = {mtrain_binary(), r, "run.dir=" + a.string(), "-q"},
                 .environment = {"MTRAIN_FAULT=train.step:13"}};
  CHECK(run(killed).status == 128 + SIGKILL);
  REQUIRE(cli({r, "run.dir=" + a.string(), "-q"}).status == 0);
  CHECK(facts(a, "001").at("last_step").is_null());
  CHECK(facts(a, "002").at("first_step") == 10);
  Outcome again = cli({"rerun", a.string()});
  CHECK_MESSAGE(again.status == 0, again.err);
  CHECK_FALSE(has(again.err, "part 1"));
  CHECK(digest(scratch / "a-rerun") == digest(a));
  // Killed before its first checkpoint: nothing of it remains.
  const fs::path early = scratch / "early";
  killed = {.arguments = {mtrain_binary(), r, "run.dir=" + early.string(), "-q"},
            .environment = {"MTRAIN_FAULT=train.step:3"}};
  CHECK(run(killed).status == 128 + SIGKILL);
  REQUIRE(cli({r, "run.dir=" + early.string(), "-q"}).status == 0);
  const std::string shown = cli({"runs", "show", early.string()}).out;
  CHECK_MESSAGE(has(shown, "no remaining steps: the run went back to an earlier step"), shown);
  // As versions without history wrote it.
  const fs::path old = scratch / "old";
  REQUIRE(cli({r, "run.dir=" + old.string(), "train.steps=10", "-q"}).status == 0);
  std::istringstream names(kNames);
  for (std::string name; names >> name;) {
    const std::string text = slurp(old / "config" / name);
    fs::remove(old / "config" / name);
    write_at(old / "config" / name, text);
  }
  fs::remove_all(old / "config/001");
  REQUIRE(cli({r, "run.dir=" + old.string(), "train.steps=15", "optimizer.lr=1e-3", "-q"}).status ==
          0);
  CHECK(has(slurp(old / "config/000/resolved.yaml"), "lr: 0.002"));
  Outcome partial = cli({"rerun", old.string()});
  CHECK_MESSAGE(partial.status == 0, partial.err);
  CHECK_MESSAGE(has(partial.err, "does not say how its first 10 steps were trained"), partial.err);
  CHECK(losses_of_run(scratch / "old-rerun").size() == 15);
}

TEST_CASE("kill -9 while a record is made leaves a folder that is read and continued") {
  Scratch scratch("mtrain-history-kill");
  const std::string r = scratch.write("r.yaml", tiny_recipe());
  const fs::path whole = scratch / "whole";
  REQUIRE(cli({r, "run.dir=" + whole.string(), "train.steps=10", "-q"}).status == 0);
  for (const char* point : {"history.record:1", "history.names:1", "history.open:1",
                            "history.fsync:2", "file.open:3"}) {
    CAPTURE(point);
    const fs::path folder = scratch / point;
    fs::copy(whole, folder, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    Command killed{.arguments = {mtrain_binary(), r, "run.dir=" + folder.string(), "train.steps=15",
                                 "optimizer.lr=1e-3", "-q"},
                   .environment = {std::string("MTRAIN_FAULT=") + point}};
    CHECK(run(killed).status == 128 + SIGKILL);
    Outcome shown = cli({"runs", "show", folder.string(), "--json"});
    CHECK_MESSAGE(shown.status == 0, shown.err);
    CHECK(cli({"config", "diff", folder.string(), whole.string()}).status == 0);
    Outcome on =
        cli({r, "run.dir=" + folder.string(), "train.steps=15", "optimizer.lr=1e-3", "-q"});
    CHECK_MESSAGE(on.status == 0, on.err);
    CHECK(has(slurp(folder / "config/resolved.yaml"), "lr: 0.001"));
    Outcome again = cli({"rerun", folder.string(), "-q"});
    CHECK_MESSAGE(again.status == 0, again.err);
    CHECK(digest(fs::path(folder.string() + "-rerun")) == digest(folder));
  }
}

TEST_CASE("runs show: how an invocation ended that failed") {
  Scratch scratch("mtrain-history-failure");
  scratch.write("r.yaml", tiny_recipe());
  const std::string train = "r.yaml -q run.dir=a train.steps=6 ";
  Outcome diverged = cli_in(scratch.path(), train + "optimizer.lr=1e30 scheduler.warmup_steps=0");
  REQUIRE_MESSAGE(diverged.status == 14, diverged.err);
  const Json failure = facts(scratch / "a", "001").at("failure");
  CHECK(failure.at("status") == 14);
  CHECK(failure.at("step").get<int64_t>() > 0);
  const std::string reason = failure.at("reason");
  CHECK_MESSAGE(has(diverged.err, reason), reason);
  CHECK(facts(scratch / "a", "001").at("last_step").is_null());  // they are lost
  const Outcome shown = cli_in(scratch.path(), "runs show a");
  CHECK_MESSAGE(has(shown.out, "; failed after step " + failure.at("step").dump() +
                                   " with status 14: " + reason.substr(0, 40)),
                shown.out);
  CHECK_FALSE(has(shown.out, "is still training"));
  const Json json = Json::parse(cli_in(scratch.path(), "runs show a --json").out);
  CHECK(json.at("invocations")[0].at("ended") == true);
  CHECK(json.at("invocations")[0].at("failure") == failure);
  // The folder is not in the way of a run that begins again.
  const Outcome again = cli_in(scratch.path(), train);
  CHECK_MESSAGE(again.status == 0, again.err);
  const Json both = Json::parse(cli_in(scratch.path(), "runs show a --json").out);
  CHECK(both.at("invocations")[1].at("failure").is_null());
}

TEST_CASE("rerun refuses other initial weights than the run's, unless it is given others") {
  Scratch scratch("mtrain-history-weights");
  scratch.write("r.yaml", tiny_recipe());
  const auto train = [&](const std::string& words) {
    const Outcome out = cli_in(scratch.path(), "r.yaml -q " + words);
    REQUIRE_MESSAGE(out.status == 0, out.err);
  };
  train("run.dir=base train.steps=5");
  train("run.dir=next model.init_from=base train.steps=3");
  const std::string again = "rerun next -q ";
  REQUIRE(cli_in(scratch.path(), again + "run.dir=same").status == 0);
  CHECK(losses_of_run(scratch / "same") == losses_of_run(scratch / "next"));
  train("run.dir=next model.init_from=base train.steps=5");  // a resume reads no initial weights
  train("run.dir=base train.steps=7");
  const Outcome refused = cli_in(scratch.path(), again + "run.dir=other");
  CHECK(refused.status == 12);
  CHECK_MESSAGE(has(refused.err, "the weights of model.init_from have changed since it began"),
                refused.err);
  CHECK_FALSE(fs::exists(scratch / "other"));
  const Outcome asked =
      cli_in(scratch.path(), again + "run.dir=other model.init_from=base/checkpoints/step-7");
  CHECK_MESSAGE(asked.status == 0, asked.err);
  CHECK_MESSAGE(has(asked.err, "differs from next: the weights of model.init_from"), asked.err);
}

TEST_CASE("runs show: whether an invocation without an end is training or was interrupted") {
  Scratch scratch("mtrain-history-training");
  scratch.write("r.yaml", tiny_recipe());
  const Outcome killed = cli_in(scratch.path(), "r.yaml -q run.dir=a train.steps=6", "/nowhere",
                                {"MTRAIN_FAULT=train.step:4:kill"});
  REQUIRE(killed.status == 128 + SIGKILL);
  const auto shows = [&](const std::string& text, const Json& training) {
    const Outcome shown = cli_in(scratch.path(), "runs show a");
    CHECK_MESSAGE(has(shown.out, text), shown.out);
    const Json json = Json::parse(cli_in(scratch.path(), "runs show a --json").out);
    CHECK(json.at("invocations")[0].at("ended") == false);
    CHECK(json.at("invocations")[0].at("training") == training);
  };
  shows("; was interrupted\n", false);
  {
    const RunLock lock(scratch / "a");  // as a job that trains
    shows("; is training\n", true);
  }
  fs::remove(RunLock::file_of(scratch / "a"));
  shows("; was interrupted, or is still training\n", nullptr);
}

TEST_CASE("runs show: a share of train.steps is another number of steps of a longer run") {
  Scratch scratch("mtrain-runs-share");
  scratch.write("r.yaml", tiny_recipe());
  for (const char* steps : {"10", "20"})
    REQUIRE(cli_in(scratch.path(), std::string("r.yaml run.dir=a -q scheduler.warmup_steps=20% ") +
                                       "train.steps=" + steps)
                .status == 0);
  const Outcome shown = cli_in(scratch.path(), "runs show a");
  CHECK_MESSAGE(has(shown.out,
                    "scheduler.warmup_steps: 20% (2 steps) -> 20% (4 steps)   (of "
                    "train.steps)"),
                shown.out);
}

TEST_CASE("runs ls and show: steps, losses, changes and checkpoints") {
  Scratch scratch("mtrain-runs");
  scratch.write("r.yaml", tiny_recipe());
  REQUIRE(cli_in(scratch.path(), "r.yaml run.dir=runs/a train.steps=10 -q").status == 0);
  REQUIRE(
      cli_in(scratch.path(), "r.yaml run.dir=runs/a train.steps=20 optimizer.lr=1e-3 -q").status ==
      0);
  REQUIRE(cli_in(scratch.path(), "r.yaml run.dir=runs/sweep/0 train.steps=10 -q").status == 0);
  Json listed = Json::parse(cli_in(scratch.path(), "runs ls --json").out);
  REQUIRE(listed.size() == 2);
  CHECK(listed[0].at("run") == "runs/a");
  CHECK(listed[0].at("step") == 20);
  CHECK(listed[0].at("steps") == 20);
  CHECK(listed[0].at("loss") == rows(scratch / "runs/a").back().at("loss"));
  CHECK(listed[1].at("run") == "runs/sweep/0");
  Outcome text = cli_in(scratch.path(), "runs ls");
  CHECK_MESSAGE(has(text.out, "runs/a"), text.out);
  CHECK_MESSAGE(has(text.out, "20/20"), text.out);
  // Steps whose losses are not in metrics.jsonl do not get those of earlier steps.
  REQUIRE(
      cli_in(scratch.path(), "r.yaml run.dir=runs/sweep/0 train.steps=20 logger.metrics=false -q")
          .status == 0);
  const Json silent = Json::parse(cli_in(scratch.path(), "runs ls --json").out)[1];
  CHECK(silent.at("step") == 20);
  CHECK(silent.at("loss").is_null());
  CHECK(silent.at("val_loss").is_null());
  // A run in the sweep's own folder hides no trial.
  REQUIRE(cli_in(scratch.path(), "r.yaml run.dir=runs/sweep train.steps=5 -q").status == 0);
  const Json all = Json::parse(cli_in(scratch.path(), "runs ls --json").out);
  REQUIRE(all.size() == 3);
  CHECK(all[1].at("run") == "runs/sweep");
  CHECK(all[1].at("step") == 5);
  CHECK(all[2].at("run") == "runs/sweep/0");
  Json run = Json::parse(cli_in(scratch.path(), "runs show runs/latest/../a --json").out);
  REQUIRE(run.at("invocations").size() == 2);
  const Json& second = run.at("invocations")[1];
  CHECK(second.at("first_step") == 11);
  CHECK(second.at("last_step") == 20);
  CHECK(second.at("loss") == rows(scratch / "runs/a").back().at("loss"));
  bool found = false;
  for (const auto& change : second.at("changes"))
    if (change.at("path") == "optimizer.lr") {
      found = true;
      CHECK(change.at("before") == "0.002");
      CHECK(change.at("after") == "0.001");
      CHECK(change.at("where") == "command line, argument 4");
    }
  CHECK(found);
  CHECK(run.at("checkpoints").back().at("step") == 20);
  Outcome shown = cli_in(scratch.path(), "runs show runs/a");
  CHECK_MESSAGE(has(shown.out, "steps 11 to 20"), shown.out);
  CHECK_MESSAGE(has(shown.out, "optimizer.lr: 0.002 -> 0.001   (command line, argument 4)"),
                shown.out);
  CHECK(cli_in(scratch.path(), "runs show nowhere").status == 12);
  CHECK(cli_in(scratch.path(), "runs ls nowhere").status == 2);
}

TEST_CASE(
    "runs show, runs ls and rerun after checkpoint rewind: the run is what it was at that step") {
  Scratch scratch("mtrain-runs-rewound");
  scratch.write("r.yaml", tiny_recipe());
  REQUIRE(
      cli_in(scratch.path(), "r.yaml run.dir=runs/a train.steps=10 checkpoint.keep=0 -q").status ==
      0);
  REQUIRE(cli_in(scratch.path(),
                 "r.yaml run.dir=runs/a train.steps=20 optimizer.lr=1e-3 checkpoint.keep=0 -q")
              .status == 0);
  const std::vector<Json> whole = rows(scratch / "runs/a");
  REQUIRE(cli_in(scratch.path(), "checkpoint rewind runs/a --step 5").status == 0);
  auto shown = [&](const char* words) { return Json::parse(cli_in(scratch.path(), words).out); };
  Json run = shown("runs show runs/a --json");
  CHECK(run.at("step") == 5);
  CHECK(run.at("rewound") == true);
  CHECK(run.at("loss") == whole[4].at("loss"));
  CHECK(run.at("invocations")[0].at("last_step") == 5);
  CHECK(run.at("invocations")[0].at("loss") == whole[4].at("loss"));
  CHECK(run.at("invocations")[1].at("first_step").is_null());
  CHECK(shown("runs ls --json")[0].at("step") == 5);
  Outcome text = cli_in(scratch.path(), "runs show runs/a");
  CHECK_MESSAGE(has(text.out, "step 5/20 (after checkpoint rewind)"), text.out);
  CHECK_MESSAGE(has(text.out, "the run went back to an earlier step"), text.out);
  // What is repeated is what led to that step, not what was given up.
  CHECK(cli_in(scratch.path(), "config show runs/a optimizer.lr").out == "0.002\n");
  Outcome again = cli_in(scratch.path(), "rerun runs/a -q");
  CHECK_MESSAGE(again.status == 0, again.err);
  CHECK(rows(scratch / "runs/a-rerun").size() == 10);
  CHECK(digest(scratch / "runs/a-rerun/checkpoints/step-5") == digest(scratch / "runs/a"));
  REQUIRE(
      cli_in(scratch.path(), "r.yaml run.dir=runs/a train.steps=10 checkpoint.keep=0 -q").status ==
      0);
  run = shown("runs show runs/a --json");
  CHECK(run.at("step") == 10);
  CHECK(run.at("rewound") == false);
  CHECK(run.at("loss") == whole[9].at("loss"));
  CHECK(run.at("invocations")[2].at("first_step") == 6);
}

TEST_CASE("the checkpoints of a run are found where checkpoint.dir put them, from any folder") {
  Scratch scratch("mtrain-checkpoints-elsewhere");
  scratch.write("r.yaml", tiny_recipe());
  write_at(scratch / "other/empty", "");
  REQUIRE(cli_in(scratch.path(), "r.yaml run.dir=runs/a checkpoint.dir=ckpt/a train.steps=10 -q")
              .status == 0);
  auto there = [&](const std::string& words) {
    Outcome out = cli_in(scratch / "other", words);
    CHECK_MESSAGE(out.status == 0, out.err);
    return out.out;
  };
  CHECK(Json::parse(there("checkpoint ls ../runs/a --json")).back().at("step") == 10);
  CHECK(there("checkpoint digest ../runs/a") == there("checkpoint digest ../ckpt/a"));
  CHECK(has(there("eval --from ../runs/a --batches 1"), "step 10"));
  CHECK(Json::parse(there("runs show ../runs/a --json")).at("checkpoints").back().at("step") == 10);
  CHECK(has(there("runs show ../ckpt/a/step-10"), "runs/a: step 10/10"));
  std::set<std::string> first_losses = {losses_of_run(scratch / "runs/a")[0]};
  for (const char* from : {"../runs/a", "../ckpt/a", "../ckpt/a/step-10"}) {
    there(std::string(
              "../r.yaml -q train.steps=1 scheduler.warmup_steps=0 run.dir=b model.init_from=") +
          from);
    first_losses.insert(losses_of_run(scratch / "other/b")[0]);
    fs::remove_all(scratch / "other/b");
  }
  CHECK(first_losses.size() == 2);  // that of random values, and that of the run's
  there("checkpoint rewind ../runs/a --step 5");
  CHECK(fs::exists(scratch / "ckpt/a/set-aside-1/step-10"));
  CHECK(Json::parse(there("runs ls .. --json"))[0].at("step") == 5);
  // By the folder of checkpoints, too; the run continues where it was taken back to.
  REQUIRE(cli_in(scratch.path(), "r.yaml run.dir=runs/a checkpoint.dir=ckpt/a train.steps=10 -q")
              .status == 0);
  there("checkpoint rewind ../ckpt/a --step 5");
  CHECK(Json::parse(there("runs show ../runs/a --json")).at("step") == 5);
  fs::rename(scratch / "ckpt", scratch / "moved");
  Outcome gone = cli_in(scratch / "other", "checkpoint ls ../runs/a");
  CHECK(gone.status == 12);
  CHECK_MESSAGE(has(gone.err, "ckpt/a (checkpoint.dir), which does not exist"), gone.err);
  // Checkpoints within the run's folder move with it.
  REQUIRE(cli_in(scratch.path(), "r.yaml run.dir=runs/c checkpoint.dir=runs/c/ck train.steps=10 -q")
              .status == 0);
  fs::rename(scratch / "runs/c", scratch / "runs/d");
  CHECK(Json::parse(there("checkpoint ls ../runs/d --json")).back().at("step") == 10);
}
