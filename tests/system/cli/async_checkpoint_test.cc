// Checkpoints written beside the steps hold what they would hold if training waited, and nothing is lost with them.
#include <algorithm>

#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

const Words kAsync = {"checkpoint.async=true"};

/// Digest of one checkpoint of a run.
std::string digest_of(const fs::path& folder, int step) {
  Outcome out = cli({"checkpoint", "digest", folder.string(), "--step", std::to_string(step)});
  return out.status == 0 ? out.out : "status " + std::to_string(out.status) + ": " + out.err;
}

}  // namespace

TEST_CASE("a slow disk: training goes on, and every checkpoint is that of its step") {
  Scratch scratch("mtrain-async");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  const Words all = {"checkpoint.keep=0", "checkpoint.interval=10"};
  train(recipe, scratch / "waits", all);
  for (const Words& ranks : {Words{}, Words{"dist.nproc=2"}, Words{"dist.nproc=2", "dist.tp=2"}}) {
    CAPTURE(text(ranks));
    fs::path folder = scratch / ("beside" + std::to_string(ranks.size()));
    // The shards of the first checkpoint take as long as several steps.
    Words words = with(with(all, ranks), kAsync);
    Outcome out = run({.arguments = with({mtrain_binary(), "train", recipe, "run.dir=" + folder.string()}, words),
                       .environment = {"MTRAIN_FAULT=ckpt.p3:1:delay=300,train.step:0:delay=20"}});
    REQUIRE_MESSAGE(out.status == 0, out.err);
    auto place = [&](const std::string& what) { return out.out.find(what); };
    CHECK_MESSAGE(place("checkpoint of step 10: ") != std::string::npos, out.out);
    CHECK(place("training waited ") != std::string::npos);
    CHECK(place("checkpoint of step 10: ") > place("step 11/40"));
    if (ranks.empty())
      for (int step : {10, 20, 30, 40}) CHECK(digest_of(folder, step) == digest_of(scratch / "waits", step));
    CHECK(cli({"checkpoint", "verify", folder.string()}).status == 0);
  }
}

TEST_CASE("kill -9 while a checkpoint is written beside the steps: the same end") {
  Scratch scratch("mtrain-async-kill");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  train(recipe, scratch / "whole", {});
  for (const char* point : {"ckpt.p1:1", "ckpt.p2:3", "ckpt.p3:2", "ckpt.p5:2", "ckpt.p6:1", "ckpt.p7:4", "ckpt.p10:5"}) {
    CAPTURE(point);
    fs::path folder = scratch / point;
    Outcome died = run({.arguments = with({mtrain_binary(), "train", recipe, "-q", "run.dir=" + folder.string()}, kAsync),
                        .environment = {std::string("MTRAIN_FAULT=") + point}});
    CHECK(died.status == 128 + SIGKILL);
    train(recipe, folder, kAsync);
    CHECK(digest(folder) == digest(scratch / "whole"));
  }
}

TEST_CASE("a save beside the steps that fails is told, and training goes on") {
  Scratch scratch("mtrain-async-fails");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  train(recipe, scratch / "whole", {});
  for (const char* fault : {"ckpt.shard.write:2:errno=ENOSPC", "ckpt.manifest.fsync:8:errno=EIO"}) {
    CAPTURE(fault);
    fs::path folder = scratch / fault;
    Outcome out = run({.arguments = with({mtrain_binary(), "train", recipe, "run.dir=" + folder.string()}, kAsync),
                       .environment = {std::string("MTRAIN_FAULT=") + fault}});
    CHECK_MESSAGE(out.status == 0, out.err);
    CHECK(out.out.find("failed: cannot") != std::string::npos);
    CHECK(digest(folder) == digest(scratch / "whole"));
  }
}

TEST_CASE("a run that ends by an error keeps the checkpoint that was under way") {
  Scratch scratch("mtrain-async-nan");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  fs::path folder = scratch / "run";
  Outcome out = run({.arguments = with({mtrain_binary(), "train", recipe, "run.dir=" + folder.string()}, kAsync),
                     .environment = {"MTRAIN_FAULT=ckpt.p3:2:delay=300,train.loss:12:nan"}});
  CHECK(out.status == 14);
  CHECK_MESSAGE(out.err.find("step 10 is saved") != std::string::npos, out.err);
  CHECK(digest_of(folder, 10).size() == 65);
}

TEST_CASE("checkpoints of certain steps are kept for ever") {
  Scratch scratch("mtrain-retain");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  train(recipe, scratch / "run", {"checkpoint.keep=2", "checkpoint.retain_interval=15"});
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(scratch / "run" / "checkpoints"))
    if (std::string name = entry.path().filename().string(); name.starts_with("step-")) names.push_back(name);
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"step-15", "step-30", "step-35", "step-40"});
}
