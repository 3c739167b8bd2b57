// Ctrl-C as it reaches a job: several times at once, by the terminal, a launcher and `timeout`. It
// saves and says so, once; a person's second one ends the job.
#include "mtrain/train/signals.h"

#include <doctest/doctest.h>

#include <csignal>
#include <future>

#include "roots.h"
#include "shell.h"
#include "training_run.h"

using namespace mtrain;
using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++n;
  return n;
}

constexpr const char* kNotice = "stopping after this step, with a checkpoint";

}  // namespace

TEST_CASE("a SIGINT ends at once when it comes ten ticks after the first, not sooner") {
  using enum StopRequests::Meaning;
  StopRequests requests;
  for (int i = 0; i < 20; ++i) requests.tick();  // nothing has come yet
  CHECK(requests.take(SIGINT) == stop);
  CHECK(requests.take(SIGINT) == nothing_new);
  for (int i = 0; i < 9; ++i) requests.tick();
  CHECK(requests.take(SIGINT) == nothing_new);
  requests.tick();
  CHECK(requests.take(SIGTERM) == nothing_new);
  CHECK(requests.take(SIGINT) == end_at_once);
  StopRequests scheduled;
  CHECK(scheduled.take(SIGTERM) == stop);
  for (int i = 0; i < 20; ++i) scheduled.tick();
  CHECK(scheduled.take(SIGTERM) == nothing_new);
  CHECK(scheduled.take(SIGINT) == nothing_new);
  for (int i = 0; i < 10; ++i) scheduled.tick();
  CHECK(scheduled.take(SIGINT) == end_at_once);
}

TEST_CASE(
    "SIGINT that comes several times at once: message and checkpoint, with one rank and with "
    "several") {
  Scratch scratch("mtrain-doubled");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  // Every rank passes train.step: step 7 is after the checkpoint of step 5, so that the save which
  // the signal asks for is the second.
  for (auto [ranks, step] : {std::pair{"1", "train.step:7"}, {"2", "train.step:13"}}) {
    CAPTURE(ranks);
    const fs::path folder = scratch / ranks;
    // The others come while the save is under way, and no tick passes before it is over.
    Outcome out =
        run({.arguments = {mtrain_binary(), recipe, "run.dir=" + folder.string(),
                           std::string("dist.nproc=") + ranks},
             .environment = {"MTRAIN_FAULT=" + std::string(step) +
                             ":stop,ckpt.p3:2:stop,ckpt.p6:2:stop,signals.tick:1:await=ckpt.p8/2"},
             .while_stopped = [](pid_t pid) { ::kill(pid, SIGINT); }});
    CHECK_MESSAGE(out.status == 128 + SIGINT, out.err);
    CHECK_MESSAGE(count(out.err, kNotice) == 1, out.err);
    CHECK(cli({"checkpoint", "verify", folder.string()}).status == 0);
    Outcome rest =
        cli({recipe, "-q", "run.dir=" + folder.string(), std::string("dist.nproc=") + ranks});
    CHECK_MESSAGE(rest.status == 0, rest.err);
  }
}

TEST_CASE("a second SIGINT after the grace ends a save that takes too long") {
  Scratch scratch("mtrain-impatient");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  Outcome out = run({.arguments = {mtrain_binary(), recipe, "run.dir=" + (scratch / "a").string()},
                     .environment = {"MTRAIN_FAULT=train.step:7:stop,ckpt.p3:2:await=signals.grace/"
                                     "1,ckpt.p4:2:stop,ckpt.p6:2:await=nobody/1"},
                     .while_stopped = [](pid_t pid) { ::kill(pid, SIGINT); }});
  CHECK_MESSAGE(out.status == 128 + SIGINT, out.err);
  CHECK_MESSAGE(has(out.err, kNotice), out.err);
  CHECK(fs::exists(scratch / "a/checkpoints/step-5"));
  CHECK_FALSE(fs::exists(scratch / "a/checkpoints/step-7"));
}

TEST_CASE(
    "a signal ends a validation that has many batches left: no loss of a part of them, and the "
    "checkpoint is there") {
  Scratch scratch("mtrain-validation-signal");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  const Words base = {"validation.steps=200000", "validation.interval=7"};
  for (const char* ranks : {"1", "2"}) {
    CAPTURE(ranks);
    const fs::path folder = scratch / ranks;
    Outcome out = run({.arguments = with({mtrain_binary(), recipe, "run.dir=" + folder.string(),
                                          std::string("dist.nproc=") + ranks},
                                         base),
                       .environment = {"MTRAIN_FAULT=eval.batch:3:stop"},
                       .while_stopped = [](pid_t pid) { ::kill(pid, SIGTERM); }});
    CHECK_MESSAGE(out.status == 128 + SIGTERM, out.err);
    CHECK_MESSAGE(has(out.out + out.err, "the validation after step 7 is incomplete"), out.out,
                  out.err);
    CHECK(fs::exists(folder / "checkpoints/step-7"));
    for (const Json& row : rows(folder, "val_loss")) CHECK(row.at("val_loss").is_null());
    // The run continues with this validation, and then like one that was not stopped.
    const auto train = [&](const fs::path& to) {
      const Outcome done =
          cli({recipe, "-q", "run.dir=" + to.string(), std::string("dist.nproc=") + ranks,
               "validation.steps=2", "validation.interval=7"});
      REQUIRE_MESSAGE(done.status == 0, done.err);
      std::vector<std::string> losses;
      for (const Json& row : rows(to, "val_loss"))
        if (!row.at("val_loss").is_null())
          losses.push_back(row.at("step").dump() + ": " + row.at("val_loss").dump());
      return losses;
    };
    CHECK(train(folder) == train(scratch / (std::string("whole") + ranks)));
  }
}

TEST_CASE("a command that saves no checkpoint stops without a word about one") {
  Scratch scratch("mtrain-prepare-signal");
  scratch.write("a.txt", "some text\n");
  // The work goes on once the signal was seen.
  Outcome out =
      run({.arguments = {mtrain_binary(), "data", "prepare", "-i", (scratch / "a.txt").string(),
                         "-o", (scratch / "a").string(), "-t", "byte"},
           .environment = {"MTRAIN_FAULT=data.read:1:stop,data.read:2:await=signals.tick/1"},
           .while_stopped = [](pid_t pid) { ::kill(pid, SIGINT); }});
  CHECK_MESSAGE(out.status == 128 + SIGINT, out.err);
  CHECK_MESSAGE(has(out.err, "Interrupt: stopping; a second Ctrl-C (SIGINT)"), out.err);
  CHECK_MESSAGE(!has(out.err, "checkpoint"), out.err);
  CHECK(has(out.err, "nothing was written"));
  CHECK_FALSE(fs::exists(scratch / "a.bin"));
}

TEST_CASE(
    "ranks that are processes: all get the signal, one says so, and the checkpoint is there") {
  Scratch scratch("mtrain-ranks-signal");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe()),
                    start_tcp = (source_root() / "tests/contract/comm/start_tcp_ranks.sh").string();
  const fs::path folder = scratch / "run", pids = scratch / "pids";
  const std::string noted = "echo $$ >> " + pids.string() + "; exec \"$0\" \"$@\"";
  auto job = std::async(std::launch::async, [&] {
    return run({.arguments = {start_tcp, "-n", "2", "/bin/sh", "-c", noted, mtrain_binary(), recipe,
                              "train.steps=100000000", "checkpoint.interval=0",
                              "validation.interval=0", "run.dir=" + folder.string()}});
  });
  await_content(folder / "metrics.jsonl", 1,
                [&] { return job.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  std::istringstream lines(slurp(pids));
  for (pid_t pid = 0; lines >> pid;) ::kill(pid, SIGINT);
  Outcome out = job.get();
  CHECK_MESSAGE(out.status == 128 + SIGINT, out.err);
  CHECK_MESSAGE(count(out.err, kNotice) == 1, out.err);
  CHECK_MESSAGE(
      has(out.err,
          "Interrupt: stopping after this step, with a checkpoint; a second Ctrl-C (SIGINT)"),
      out.err);
  CHECK(cli({"checkpoint", "verify", folder.string()}).status == 0);
}

TEST_CASE("ranks of --nproc: the message comes however quick the end is") {
  Scratch scratch("mtrain-nproc-signal");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  const fs::path folder = scratch / "run";
  Outcome out = run({.arguments = {mtrain_binary(), "--nproc", "2", recipe, "dist.comm=tcp",
                                   "train.steps=100000000", "checkpoint.interval=0",
                                   "validation.interval=0", "run.dir=" + folder.string()},
                     .signal_after = 0.01,
                     .signal_file = folder / "metrics.jsonl",
                     .signal = SIGINT});
  CHECK_MESSAGE(out.status == 128 + SIGINT, out.err);
  CHECK_MESSAGE(count(out.err, kNotice) == 1, out.err);
  CHECK_MESSAGE(
      has(out.err,
          "Interrupt: stopping after this step, with a checkpoint; a second Ctrl-C (SIGINT)"),
      out.err);
  CHECK(cli({"checkpoint", "verify", folder.string()}).status == 0);
}
