// A run that dies at any moment continues to the same bits as one that never died.
#include <doctest/doctest.h>

#include <random>

#include "../process.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> train_words(const std::string& recipe, const fs::path& folder) {
  return {mtrain_binary(), "train", recipe, "run.dir=" + folder.string(), "--quiet"};
}

bool finished(const fs::path& folder) { return fs::exists(folder / "checkpoints" / "step-40"); }

/// Whether a run in this folder continues one that came as far as its first checkpoint.
bool has_checkpoint(const fs::path& folder) {
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints", absent))
    if (entry.path().filename().string().starts_with("step-")) return true;
  return false;
}

int moments() {
  const char* wanted = std::getenv("MTRAIN_CRASH_MOMENTS");
  return wanted ? std::atoi(wanted) : 50;
}

}  // namespace

TEST_CASE(
    "kill -9 at random moments, then resume: the digest of the uninterrupted run, every time") {
  Scratch scratch("mtrain-crash");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  REQUIRE(run({.arguments = train_words(recipe, scratch / "whole")}).status == 0);
  std::string expected = digest(scratch / "whole");
  REQUIRE(expected.size() == 65);

  // A moment is a place in the run's metrics, which grow with every step however fast the machine
  // is, and some milliseconds; or some milliseconds from its start, to meet the loading.
  const auto bytes = fs::file_size(scratch / "whole" / "metrics.jsonl");
  const char* seed = std::getenv("MTRAIN_CRASH_SEED");
  std::mt19937 random(seed ? static_cast<uint32_t>(std::atoi(seed)) : 20260101);
  std::uniform_real_distribution<double> place(0, 0.9), milliseconds(0.1, 10), from_start(1, 200);
  int kills = 0, resumes = 0;
  for (int round = 0; kills < moments() && round < 4 * moments() + 20; ++round) {
    fs::path folder = scratch / ("run" + std::to_string(round));
    while (!finished(folder) && kills < moments()) {
      bool resumed = has_checkpoint(folder), starting = random() % 4 == 0;
      Outcome died = run(
          {.arguments = train_words(recipe, folder),
           .signal_after = (starting ? from_start : milliseconds)(random) / 1000,
           .signal_file = starting ? fs::path() : folder / "metrics.jsonl",
           .signal_bytes = 1 + static_cast<uintmax_t>(place(random) * static_cast<double>(bytes))});
      kills += died.status == 128 + SIGKILL;
      resumes += resumed;
      CHECK_MESSAGE((died.status == 128 + SIGKILL || died.status == 0), died.err);
    }
    Outcome last = run({.arguments = train_words(recipe, folder)});
    CHECK_MESSAGE(last.status == 0, last.err);
    CHECK(digest(folder) == expected);
    fs::remove_all(folder);
  }
  MESSAGE(kills, " kills, ", resumes, " resumed runs");
  CHECK(kills == moments());
  CHECK(resumes > 0);  // otherwise the kills came too early to show anything
}

TEST_CASE("kill -9 at every named point of saving and stepping") {
  Scratch scratch("mtrain-points");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  REQUIRE(run({.arguments = train_words(recipe, scratch / "whole")}).status == 0);
  std::string expected = digest(scratch / "whole");
  for (const char* point : {"train.step:1", "train.step:7", "train.step:40", "ckpt.p0:2",
                            "ckpt.p1:1", "ckpt.p2:3", "ckpt.p3:2", "ckpt.p4:2", "ckpt.p5:2",
                            "ckpt.p6:1", "ckpt.p7:4", "ckpt.p8:2", "ckpt.p9:3", "ckpt.p10:5"}) {
    CAPTURE(point);
    fs::path folder = scratch / point;
    Outcome died = run({.arguments = train_words(recipe, folder),
                        .environment = {std::string("MTRAIN_FAULT=") + point}});
    CHECK(died.status == 128 + SIGKILL);
    Outcome last = run({.arguments = train_words(recipe, folder)});
    CHECK_MESSAGE(last.status == 0, last.err);
    CHECK(digest(folder) == expected);
  }
}

TEST_CASE("a save that fails never stops training") {
  Scratch scratch("mtrain-enospc");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  REQUIRE(run({.arguments = train_words(recipe, scratch / "whole")}).status == 0);
  for (const char* fault : {"ckpt.shard.write:2:errno=ENOSPC", "ckpt.shard.fsync:1:errno=EIO"}) {
    CAPTURE(fault);
    Outcome outcome = run(
        {.arguments = {mtrain_binary(), "train", recipe, "run.dir=" + (scratch / fault).string()},
         .environment = {std::string("MTRAIN_FAULT=") + fault}});
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    CHECK(outcome.out.find("failed: cannot") != std::string::npos);
    CHECK(digest(scratch / fault) == digest(scratch / "whole"));
  }
}

TEST_CASE("a flipped bit: the damaged checkpoint is refused by name and the one before is used") {
  Scratch scratch("mtrain-flip");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  REQUIRE(run({.arguments = train_words(recipe, scratch / "run")}).status == 0);
  std::string expected = digest(scratch / "run");
  std::mt19937_64 random(7);
  for (const char* name : {"manifest.json", "shard-00000-of-00001.safetensors"}) {
    for (int i = 0; i < 4; ++i) {
      fs::path folder = scratch / "copy";
      fs::remove_all(folder);
      fs::copy(scratch / "run", folder, fs::copy_options::recursive);
      fs::path victim = folder / "checkpoints" / "step-40" / name;
      std::string bytes = slurp(victim);
      uint64_t bit = random() % (bytes.size() * 8);
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
      std::ofstream(victim, std::ios::binary) << bytes;
      CAPTURE(bit);
      Outcome verify = cli({"checkpoint", "verify", folder.string()});
      CHECK(verify.status == 12);
      Outcome listed = cli({"checkpoint", "ls",
                            folder.string()});  // looks at manifests and sizes, and claims no more
      CHECK_MESSAGE(listed.out.find("complete") != std::string::npos, listed.out);
      CHECK_MESSAGE(listed.out.find("valid") == std::string::npos, listed.out);
      Outcome again =
          run({.arguments = {mtrain_binary(), "train", recipe, "run.dir=" + folder.string()}});
      CHECK_MESSAGE(again.err.find("checkpoint of step 40 is refused") != std::string::npos,
                    again.err);
      CHECK_MESSAGE(again.err.find("continuing from step 35") != std::string::npos, again.err);
      CHECK(again.status == 0);
      CHECK(digest(folder) == expected);
    }
  }
}

TEST_CASE("no valid checkpoint left: never a silent start from scratch") {
  Scratch scratch("mtrain-none");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  REQUIRE(run({.arguments = train_words(recipe, scratch / "run")}).status == 0);
  for (const auto& entry : fs::directory_iterator(scratch / "run" / "checkpoints"))
    if (entry.is_directory())
      std::ofstream(entry.path() / "manifest.json", std::ios::binary) << "{}";
  Outcome outcome = run({.arguments = train_words(recipe, scratch / "run")});
  CHECK(outcome.status == 12);
}

TEST_CASE("SIGTERM and SIGINT: a checkpoint at the step edge, 143 or 130, and the same end") {
  Scratch scratch("mtrain-term");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  REQUIRE(run({.arguments = train_words(recipe, scratch / "whole")}).status == 0);
  for (int signal : {SIGTERM, SIGINT}) {
    fs::path folder = scratch / std::to_string(signal);
    std::vector<std::string> slow = train_words(recipe, folder);
    Outcome stopped = run({.arguments = slow,
                           .environment = {"MTRAIN_FAULT=train.step:7:stop"},
                           .while_stopped = [signal](pid_t pid) { ::kill(pid, signal); }});
    CHECK_MESSAGE(stopped.status == 128 + signal, stopped.err);
    CHECK(cli({"checkpoint", "verify", folder.string()}).status == 0);
    CHECK(run({.arguments = train_words(recipe, folder)}).status == 0);
    CHECK(digest(folder) == digest(scratch / "whole"));
  }
}
