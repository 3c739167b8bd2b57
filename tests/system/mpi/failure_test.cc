// Jobs that lose a rank: they end in time, say which rank, where and at what, leave nothing behind,
// and continue to the bits of a job that lost none. MTRAIN_FAIL_MOMENTS: how many random moments.
#include <doctest/doctest.h>

#include <random>

#include "mpi_job.h"

using namespace mtrain::testing;

namespace {

int moments() {
  const char* wanted = std::getenv("MTRAIN_FAIL_MOMENTS");
  return wanted ? std::atoi(wanted) : 4;
}

const std::string kSlow = "MTRAIN_FAULT=train.step:0:delay=50";
// A process that says nothing for six tenths of this is taken for stopped; the healthy ones have to
// do better on a busy machine.
const std::string kWatched = "dist.silence_seconds=10";

/// Three ranks, started by mtrain itself or by mpirun.
std::vector<std::string> launched(bool nproc, const std::string& recipe, const fs::path& folder,
                                  const std::string& word = "dist.silence_seconds=120") {
  if (!nproc) return mpirun_command(3, ":", {recipe, "-q", word, "run.dir=" + folder.string()});
  return {mtrain_binary(),
          "--nproc",
          "3",
          recipe,
          "-q",
          "dist.comm=mpi",
          word,
          "run.dir=" + folder.string()};
}

}  // namespace

TEST_CASE(
    "any rank killed or stopped at any moment: the job ends in time with the right words, and "
    "continues to "
    "the same bits") {
  MT_NEEDS_MPI();
  Scratch scratch("mtrain-lost-rank");
  std::string recipe = scratch.write("job.yaml", job_recipe());
  Outcome whole = run({.arguments = launched(true, recipe, scratch / "whole")});
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  std::string expected = digest(scratch / "whole");
  REQUIRE(expected.size() == 65);

  const char* seed = std::getenv("MTRAIN_FAIL_SEED");
  std::mt19937 random(seed ? static_cast<uint32_t>(std::atoi(seed)) : 20260101);
  const auto bytes = fs::file_size(scratch / "whole" / "metrics.jsonl");
  double longest = 0;
  int struck = 0;
  for (int round = 0; struck < moments() && round < 10 * moments() + 10; ++round) {
    int signal = round % 2 == 0 ? SIGKILL : SIGSTOP,
        rank = round < 4 ? 0 : static_cast<int>(random() % 3);
    bool nproc = round / 2 % 2 == 0;
    double moment = std::uniform_real_distribution<double>(0.0, 0.6)(random);  // of the run
    CAPTURE(signal);
    CAPTURE(nproc);
    CAPTURE(rank);
    CAPTURE(moment);
    fs::path folder = scratch / ("run" + std::to_string(round));
    RunningJob job(
        {.arguments = launched(nproc, recipe, folder, kWatched), .environment = {kSlow}});
    auto place = 1 + static_cast<uintmax_t>(moment * static_cast<double>(bytes));
    await_content(folder / "metrics.jsonl", place, [&] { return job.ended(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 50));
    std::vector<pid_t> pids = processes(folder.string(), rank);
    if (pids.size() != 1 || job.ended()) {
      job.await({}, folder.string());
      continue;
    }
    auto [out, seconds] = job.await(RunningJob::strike(pids[0], signal), folder.string());
    if (out.status == 0) continue;  // it was at its end
    ++struck;
    longest = std::max(longest, seconds);
    INFO(out.err);
    CHECK(out.status == (nproc || signal == SIGSTOP
                             ? 15
                             : 128 + SIGKILL));  // mpirun has a word of its own for a signal
    CHECK(has(out.err, "rank " + std::to_string(rank) + " on "));
    CHECK(has(out.err, signal == SIGKILL ? " has died without an error message"
                                         : " has sent no heartbeat for "));
    CHECK(has(out.err, " steps done, "));
    CHECK(has(out.err, " of group '"));
    CHECK(has(out.err, "the same command continues from the newest checkpoint"));
    CHECK(all_gone(folder.string()));
    Outcome rest = run({.arguments = launched(nproc, recipe, folder)});
    CHECK_MESSAGE(rest.status == 0, rest.err);
    CHECK(digest(folder) == expected);
    fs::remove_all(folder);
  }
  MESSAGE(struck, " moments, ", longest, " s from a strike to the job's end at most");
  CHECK(struck == moments());
}

TEST_CASE("a process that is stuck in what it computes ends the job") {
  MT_NEEDS_MPI();
  Scratch scratch("mtrain-stuck-rank");
  std::string recipe = scratch.write("job.yaml", job_recipe());
  fs::path folder = scratch / "run";
  Outcome out = run({.arguments = mpirun_command(
                         3, "[ $rank = 1 ] && export MTRAIN_FAULT=train.step:35:delay=900000",
                         {recipe, "-q", kWatched, "run.dir=" + folder.string()})});
  INFO(out.err);
  CHECK(out.status == 15);
  CHECK(has(out.err, "rank 1 on "));
  CHECK(has(out.err, " has not reached its next call for "));
  CHECK(has(out.err, "ranks 0, 2 on "));
  CHECK(has(out.err, " in all_reduce"));
  CHECK(all_gone(folder.string()));
}

TEST_CASE("a thread that is stuck, or throws, ends the job") {
  Scratch scratch("mtrain-stuck-thread");
  std::string recipe = scratch.write("job.yaml", job_recipe());
  auto train = [&](const std::string& name, const std::string& fault) {
    return run({.arguments = {mtrain_binary(), recipe, "-q", kWatched, "dist.nproc=3",
                              "run.dir=" + (scratch / name).string()},
                .environment = {"MTRAIN_FAULT=" + fault}});
  };
  Outcome stuck = train("stuck", "train.step:100:delay=900000");
  INFO(stuck.err);
  CHECK(stuck.status == 15);
  CHECK(has(stuck.err, " has not reached its next call for "));
  CHECK(has(stuck.err, " steps done, in all_reduce"));
  Outcome thrown = train("thrown", "train.step:100:throw");
  CHECK(thrown.status == 18);
  CHECK(has(thrown.err, "fault injected at train.step"));
}

TEST_CASE("a rank that takes much longer than the others is named within twenty steps") {
  MT_NEEDS_MPI();
  Scratch scratch("mtrain-slow-rank");
  std::string recipe = scratch.write("job.yaml", job_recipe());
  Outcome out = run({.arguments = mpirun_command(
                         3, "export MTRAIN_FAULT=train.step:0:delay=$((rank == 2 ? 800 : 100))",
                         {recipe, "-q", "train.steps=20", "scheduler.warmup_steps=1",
                          "run.dir=" + (scratch / "run").string()})});
  INFO(out.err);
  CHECK(out.status == 0);
  CHECK(has(out.err, "rank 2 on "));
  CHECK(has(out.err, " is slow: after step "));
}
