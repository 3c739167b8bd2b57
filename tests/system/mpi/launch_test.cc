// Starting jobs of several processes: by --nproc, by mpirun, with ranks that are not alike.
#include <doctest/doctest.h>

#include "mpi_job.h"
#include "roots.h"

using namespace mtrain::testing;

namespace {

std::string run_dir(const fs::path& folder) { return "run.dir=" + folder.string(); }

/// The plugins with one of them that looks like another build.
void other_build(const fs::path& folder, const std::string& plugin) {
  fs::copy(build_root() / "lib/mtrain/plugins", folder, fs::copy_options::recursive);
  std::string sidecar = slurp(folder / (plugin + ".json")), code = slurp(folder / (plugin + ".so"));
  size_t at = sidecar.find("build-id:");
  REQUIRE(at != std::string::npos);
  std::string id = sidecar.substr(at + 9, 40), bytes;
  for (size_t i = 0; i < id.size(); i += 2)
    bytes += static_cast<char>(std::stoi(id.substr(i, 2), nullptr, 16));
  size_t place = code.find(bytes);
  REQUIRE(place != std::string::npos);
  std::string other = id;
  other[1] = id[1] == '0' ? '1' : '0';
  code[place] = static_cast<char>(std::stoi(other.substr(0, 2), nullptr, 16));
  sidecar.replace(at + 9, 40, other);
  std::ofstream(folder / (plugin + ".so"), std::ios::binary) << code;
  std::ofstream(folder / (plugin + ".json"), std::ios::binary) << sidecar;
}

}  // namespace

TEST_CASE(
    "--nproc with dist.comm=mpi and mpirun train what threads train, and mpirun says how many") {
  MT_NEEDS_MPI();
  Scratch scratch("mtrain-launch");
  std::string recipe = scratch.write("job.yaml", job_recipe());
  Outcome threads = cli({recipe, "-q", "dist.nproc=3", run_dir(scratch / "threads")});
  REQUIRE_MESSAGE(threads.status == 0, threads.err);
  std::string expected = digest(scratch / "threads");
  Outcome launched = cli({"--nproc", "3", recipe, "dist.comm=mpi", run_dir(scratch / "launched"),
                          "run.name=of-${world_size:}"});
  REQUIRE_MESSAGE(launched.status == 0, launched.err);
  CHECK(has(launched.out, "3 ranks (mpi)"));
  CHECK(has(launched.out, "of-3"));
  CHECK(digest(scratch / "launched") == expected);
  Outcome by_hand =
      run({.arguments = mpirun_command(3, ":", {recipe, "-q", run_dir(scratch / "by-hand")})});
  REQUIRE_MESSAGE(by_hand.status == 0, by_hand.err);
  CHECK(digest(scratch / "by-hand") == expected);
  Outcome other = run({.arguments = mpirun_command(
                           3, ":", {recipe, "-q", "dist.nproc=2", run_dir(scratch / "other")})});
  CHECK(other.status == 10);
  CHECK_MESSAGE(has(other.err, "3 ranks were started, but dist.nproc is 2"), other.err);
}

TEST_CASE(
    "ranks that connect through MASTER_ADDR, as torchrun starts them, train what threads train, "
    "and report what is missing") {
  Scratch scratch("mtrain-meet");
  std::string recipe = scratch.write("job.yaml", job_recipe()),
              start_tcp = (source_root() / "tests/contract/comm/start_tcp_ranks.sh").string();
  Outcome threads =
      cli({recipe, "-q", "dist.nproc=3", "dist.zero=1", run_dir(scratch / "threads")});
  REQUIRE_MESSAGE(threads.status == 0, threads.err);
  Outcome results = run({.arguments = {start_tcp, "-n", "3", mtrain_binary(), recipe, "dist.zero=1",
                                       run_dir(scratch / "results")}});
  REQUIRE_MESSAGE(results.status == 0, results.err);
  CHECK_MESSAGE(has(results.out, "3 ranks (tcp)"), results.out);
  CHECK(digest(scratch / "results") == digest(scratch / "threads"));
  std::string odd = "if [ $RANK = 1 ]; then set -- \"$@\" optimizer.lr=1; fi; exec \"$0\" \"$@\"";
  Outcome differ = run({.arguments = {start_tcp, "-n", "3", "/bin/sh", "-c", odd, mtrain_binary(),
                                      recipe, run_dir(scratch / "odd")}});
  CHECK_MESSAGE(differ.status == 10, differ.err);
  CHECK_MESSAGE(has(differ.err, "the ranks of this job differ"), differ.err);
  Outcome lost = cli({recipe, "-q", "dist.nproc=2", "dist.comm=tcp", run_dir(scratch / "lost")},
                     {"RANK=0", "WORLD_SIZE=2"});
  CHECK_MESSAGE(lost.status == 10, lost.err);
  CHECK_MESSAGE(has(lost.err, "MASTER_ADDR"), lost.err);
}

TEST_CASE("--nproc with dist.comm=mpi reports faults once and forwards signals") {
  MT_NEEDS_MPI();
  Scratch scratch("mtrain-launch-signals");
  std::string recipe = scratch.write("job.yaml", job_recipe());
  Outcome faulty = cli({"--nproc", "3", recipe, "optimizer.lrr=1"});
  CHECK(faulty.status == 10);
  CHECK(has(faulty.err, "optimizer.lrr"));
  CHECK(faulty.err.find("mtrain: error") == faulty.err.rfind("mtrain: error"));
  CHECK(cli({"--nproc", "3", "-"}).status == 2);
  CHECK(cli({"--nproc", "0", recipe}).status == 2);
  CHECK(cli({"--nproc", "2", recipe, "-m", "optimizer.lr=1,2"}).status == 2);
  Outcome missing =
      cli({"--nproc", "3", recipe, "dist.comm=mpi", run_dir(scratch / "none")}, {"PATH=/nowhere"});
  CHECK(missing.status == 2);
  CHECK(has(missing.err, "mpirun"));

  Outcome whole = cli({"--nproc", "3", recipe, "-q", "dist.comm=mpi", run_dir(scratch / "whole")});
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  for (int signal : {SIGTERM, SIGINT}) {
    fs::path folder = scratch / std::to_string(signal);
    Outcome stopped = run({.arguments = {mtrain_binary(), "--nproc", "3", recipe, "-q",
                                         "dist.comm=mpi", run_dir(folder)},
                           .environment = {"MTRAIN_FAULT=train.step:0:delay=500"},
                           .signal_after = 0.1,
                           .signal_file = folder / "metrics.jsonl",
                           .signal = signal});
    CHECK_MESSAGE(stopped.status == 128 + signal, stopped.err);
    CHECK(cli({"checkpoint", "verify", folder.string()}).status == 0);
    Outcome rest = cli({"--nproc", "3", recipe, "-q", "dist.comm=mpi", run_dir(folder)});
    CHECK_MESSAGE(rest.status == 0, rest.err);
    CHECK(digest(folder) == digest(scratch / "whole"));
  }
}

TEST_CASE("nothing is left of a job whose --nproc with dist.comm=mpi is killed") {
  MT_NEEDS_MPI();
  Scratch scratch("mtrain-launch-killed");
  std::string recipe = scratch.write("job.yaml", job_recipe());
  fs::path folder = scratch / "run";
  Outcome killed = run({.arguments = {mtrain_binary(), "--nproc", "3", recipe, "-q",
                                      "dist.comm=mpi", run_dir(folder), "train.steps=1000000"},
                        .signal_after = 0.2,
                        .signal_file = folder / "metrics.jsonl"});
  CHECK(killed.status == 128 + SIGKILL);
  bool gone = all_gone(folder.string());
  for (pid_t left : processes(folder.string())) ::kill(left, SIGKILL);
  CHECK(gone);
}

TEST_CASE("ranks that are not alike are refused by name before anything is built") {
  MT_NEEDS_MPI();
  Scratch scratch("mtrain-unlike");
  std::string recipe = scratch.write("job.yaml", job_recipe());
  fs::path folder = scratch / "run";
  auto refused = [&](const std::string& for_rank, const std::vector<std::string>& parts) {
    Outcome out = run({.arguments = mpirun_command(3, for_rank, {recipe, "-q", run_dir(folder)})});
    INFO(out.err);
    CHECK(out.status == 10);
    CHECK(has(out.err, "the ranks of this job differ"));
    for (const auto& part : parts) CHECK(has(out.err, part));
    CHECK_FALSE(fs::exists(folder / "metrics.jsonl"));
  };
  refused("[ $rank = 2 ] && set -- \"$@\" optimizer.lr=0.5",
          {"rank 2 on ", "optimizer.lr is 0.5, on rank 0 0.002"});
  other_build(scratch / "plugins", "optimizer_adamw");
  refused("[ $rank = 1 ] && export MTRAIN_PLUGIN_PATH=" + (scratch / "plugins").string(),
          {"rank 1 on ", "its plugin optimizer/adamw is build-id:", ", on rank 0 build-id:"});
}

TEST_CASE("bench times the ranks that mpirun started, and leaves no folder behind") {
  MT_NEEDS_MPI();
  Scratch scratch("mtrain-launch-bench");
  std::string recipe = scratch.write("job.yaml", job_recipe());
  fs::path places = scratch / "tmp";
  fs::create_directories(places);
  std::vector<std::string> words = {"bench",    recipe, "--steps", "2",
                                    "--warmup", "1",    "--json",  "--plain"};
  Outcome out = run(
      {.arguments = mpirun_command(3, ":", words), .environment = {"TMPDIR=" + places.string()}});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  CHECK(has(out.out, "tokens_per_second"));
  for (const auto& entry : fs::recursive_directory_iterator(places))
    CHECK(entry.path().filename().string().find("mtrain-bench") == std::string::npos);
}
