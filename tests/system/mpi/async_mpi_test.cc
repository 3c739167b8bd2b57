// Checkpoints that processes copy and write in the background while one of them is slow, fails or
// dies.
#include <doctest/doctest.h>

#include "mpi_job.h"

using namespace mtrain::testing;

namespace {

using Words = std::vector<std::string>;

Words job(const std::string& recipe, const fs::path& folder, const std::string& async) {
  return {"train",
          recipe,
          "run.dir=" + folder.string(),
          "checkpoint.keep=0",
          "checkpoint.async=" + async,
          "dist.zero=1"};
}

std::string digest_of(const fs::path& folder, int step) {
  return cli({"checkpoint", "digest", folder.string(), "--step", std::to_string(step)}).out;
}

/// The run folder of a job of two ranks that saves without checkpoint.async: the reference for the
/// other jobs.
fs::path blocking_run(const Scratch& scratch, const std::string& recipe) {
  fs::path folder = scratch / "blocking";
  Outcome out = run({.arguments = mpirun_command(2, ":", job(recipe, folder, "false"))});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  return folder;
}

}  // namespace

TEST_CASE("a rank whose copy is slow, and one that has no memory for it") {
  MT_NEEDS_MPI();
  Scratch scratch("mtrain-mpi-async");
  std::string recipe = scratch.write("job.yaml", job_recipe());
  fs::path blocking = blocking_run(scratch, recipe), folder = scratch / "async";
  std::string faults =
      "[ $rank = 1 ] && export MTRAIN_FAULT=ckpt.copy:5:delay=500,ckpt.copy:100:errno=ENOMEM";
  Outcome out = run({.arguments = mpirun_command(2, faults, job(recipe, folder, "true"))});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  int failed = 0;
  for (int step = 10; step <= 60; step += 10) {
    CAPTURE(step);
    if (has(out.out, "checkpoint of step " + std::to_string(step) +
                         " failed: another rank could not save")) {
      ++failed;
      CHECK_FALSE(fs::exists(folder / "checkpoints" / ("step-" + std::to_string(step))));
      continue;
    }
    std::string mine = digest_of(folder, step);
    CHECK(mine.size() == 65);
    CHECK(mine == digest_of(blocking, step));
  }
  CHECK_MESSAGE(failed == 1, out.out);
}

TEST_CASE(
    "a rank that dies while it copies leaves the checkpoint before, and the job continues to the "
    "same end") {
  MT_NEEDS_MPI();
  Scratch scratch("mtrain-mpi-async-dies");
  std::string recipe = scratch.write("job.yaml", job_recipe());
  fs::path blocking = blocking_run(scratch, recipe), folder = scratch / "async";
  std::string fault = "[ $rank = 1 ] && export MTRAIN_FAULT=ckpt.copy:100:kill";
  Outcome died = run({.arguments = mpirun_command(2, fault, job(recipe, folder, "true"))});
  CHECK(died.status != 0);
  CHECK_FALSE(fs::exists(folder / "checkpoints" / "step-60"));
  Outcome out = run({.arguments = mpirun_command(2, ":", job(recipe, folder, "true"))});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  CHECK(digest(folder) == digest(blocking));
}
