// Checkpoints written in the background hold what they would hold if training waited, and nothing
// is lost with them.
#include <algorithm>

#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

const Words kAsync = {"checkpoint.async=true"};

/// Whose ranks are not taken for stuck on a busy machine.
std::string patient_recipe() { return tiny_recipe() + "dist: {silence_seconds: 120}\n"; }

/// What a run says of the time that training stood still for the checkpoint of a step, in ms; -1
/// when it says nothing.
int waited_for(const Outcome& out, int step) {
  size_t at = out.out.find("checkpoint of step " + std::to_string(step) + ": ");
  const std::string phrase = "training waited ";
  if (at != std::string::npos) at = out.out.find(phrase, at);
  return at == std::string::npos ? -1 : std::atoi(out.out.c_str() + at + phrase.size());
}

/// Digest of one checkpoint of a run.
std::string digest_of(const fs::path& folder, int step) {
  Outcome out = cli({"checkpoint", "digest", folder.string(), "--step", std::to_string(step)});
  return out.status == 0 ? out.out : "status " + std::to_string(out.status) + ": " + out.err;
}

}  // namespace

TEST_CASE("a slow disk: training goes on, and every checkpoint is that of its step") {
  Scratch scratch("mtrain-async");
  std::string recipe = scratch.write("tiny.yaml", patient_recipe());
  const Words all = {"checkpoint.keep=0", "checkpoint.interval=10"};
  train(recipe, scratch / "waits", all);
  for (const Words& ranks : {Words{}, Words{"dist.nproc=2"}, Words{"dist.nproc=2", "dist.tp=2"}}) {
    CAPTURE(text(ranks));
    fs::path folder = scratch / ("background" + std::to_string(ranks.size()));
    // The shards of the first checkpoint wait until every rank has done three more steps.
    Words words = with(with(all, ranks), kAsync);
    Outcome out = run(
        {.arguments = with({mtrain_binary(), "train", recipe, "run.dir=" + folder.string()}, words),
         .environment = {"MTRAIN_FAULT=ckpt.p3:1:await=train.step/" +
                         std::to_string(13 * (ranks.empty() ? 1 : 2))}});
    REQUIRE_MESSAGE(out.status == 0, out.err);
    auto place = [&](const std::string& what) { return out.out.find(what); };
    CHECK_MESSAGE(place("checkpoint of step 10: ") != std::string::npos, out.out);
    CHECK(place("training waited ") != std::string::npos);
    CHECK(place("checkpoint of step 10: ") > place("step 11/40"));
    if (ranks.empty())
      for (int step : {10, 20, 30, 40})
        CHECK(digest_of(folder, step) == digest_of(scratch / "waits", step));
    CHECK(cli({"checkpoint", "verify", folder.string()}).status == 0);
  }
}

TEST_CASE(
    "a slow copy of the state: the update waits for it, and every checkpoint is that of its step") {
  Scratch scratch("mtrain-async-copy");
  std::string recipe = scratch.write("tiny.yaml", patient_recipe());
  int number = 0;
  for (const Words& words :
       {Words{}, Words{"mixed_precision.dtype=bf16"}, Words{"dist.nproc=2", "dist.zero=1"},
        Words{"dist.nproc=2", "dist.zero=3"}, Words{"dist.nproc=2", "dist.tp=2"}}) {
    CAPTURE(text(words));
    std::string name = std::to_string(number++);
    Words all = with({"checkpoint.keep=0", "checkpoint.interval=10"}, words);
    fs::path waits = scratch / ("waits" + name), background = scratch / ("background" + name);
    train(recipe, waits, all);
    Outcome out =
        run({.arguments = with({mtrain_binary(), "train", recipe, "run.dir=" + background.string()},
                               with(all, kAsync)),
             .environment = {"MTRAIN_FAULT=ckpt.copy:5:delay=600"}});
    REQUIRE_MESSAGE(out.status == 0, out.err);
    for (int step : {10, 20, 30, 40}) CHECK(digest_of(background, step) == digest_of(waits, step));
    CHECK(digest_of(background, 10).size() == 65);
  }
}

TEST_CASE(
    "the copy goes on while the next step computes, and the time that training waited is "
    "reported") {
  Scratch scratch("mtrain-async-reported");
  std::string recipe = scratch.write("tiny.yaml", patient_recipe());
  auto run_with = [&](const std::string& name, const std::string& faults) {
    Words words = {mtrain_binary(), "train", recipe, "run.dir=" + (scratch / name).string(),
                   "checkpoint.interval=10"};
    Outcome out =
        run({.arguments = with(words, kAsync), .environment = {"MTRAIN_FAULT=" + faults}});
    REQUIRE_MESSAGE(out.status == 0, out.err);
    return out;
  };
  // The copy takes five seconds from when the next step has its loss: its update waits for what is
  // left of them.
  Outcome alone = run_with("alone", "ckpt.copy:5:await=train.loss/11,ckpt.copy:5:delay=5000");
  CHECK_MESSAGE(waited_for(alone, 10) >= 1, alone.out);
  // The next step has its loss only when the copy is made and written: its update waits for
  // nothing.
  Outcome background =
      run_with("background", "ckpt.copy:5:delay=500,train.loss:11:await=ckpt.p0/1");
  CHECK_MESSAGE(waited_for(background, 10) >= 0, background.out);
  CHECK_MESSAGE(waited_for(background, 10) < waited_for(alone, 10), background.out);
}

TEST_CASE("kill -9 while a checkpoint is written in the background: the same end") {
  Scratch scratch("mtrain-async-kill");
  std::string recipe = scratch.write("tiny.yaml", patient_recipe());
  train(recipe, scratch / "whole", {});
  for (const char* point : {"ckpt.copy:2", "ckpt.copy:90", "ckpt.p0:3", "ckpt.p1:1", "ckpt.p2:3",
                            "ckpt.p3:2", "ckpt.p5:2", "ckpt.p6:1", "ckpt.p7:4", "ckpt.p10:5"}) {
    CAPTURE(point);
    fs::path folder = scratch / point;
    Outcome died =
        run({.arguments = with(
                 {mtrain_binary(), "train", recipe, "-q", "run.dir=" + folder.string()}, kAsync),
             .environment = {std::string("MTRAIN_FAULT=") + point}});
    CHECK(died.status == 128 + SIGKILL);
    train(recipe, folder, kAsync);
    CHECK(digest(folder) == digest(scratch / "whole"));
  }
}

TEST_CASE("a failed save in the background is reported, and training goes on") {
  Scratch scratch("mtrain-async-fails");
  std::string recipe = scratch.write("tiny.yaml", patient_recipe());
  train(recipe, scratch / "whole", {});
  for (const char* fault : {"ckpt.shard.write:2:errno=ENOSPC", "ckpt.manifest.fsync:8:errno=EIO"}) {
    CAPTURE(fault);
    fs::path folder = scratch / fault;
    Outcome out =
        run({.arguments =
                 with({mtrain_binary(), "train", recipe, "run.dir=" + folder.string()}, kAsync),
             .environment = {std::string("MTRAIN_FAULT=") + fault}});
    CHECK_MESSAGE(out.status == 0, out.err);
    CHECK(out.out.find("failed: cannot") != std::string::npos);
    CHECK(digest(folder) == digest(scratch / "whole"));
  }
}

TEST_CASE(
    "a rank that has no memory for the copy or for the save's own needs: the save fails on all, "
    "and training goes on") {
  Scratch scratch("mtrain-async-memory");
  std::string recipe = scratch.write("tiny.yaml", patient_recipe());
  const Words ranks = {"dist.nproc=2", "dist.zero=1"};
  train(recipe, scratch / "whole", ranks);
  for (auto [async, fault] : {std::pair{"checkpoint.async=true", "ckpt.copy:7"},
                              {"checkpoint.async=false", "ckpt.copy:7"},
                              {"checkpoint.async=true", "ckpt.begin:2"},
                              {"checkpoint.async=false", "ckpt.begin:1"}}) {
    CAPTURE(async);
    CAPTURE(fault);
    fs::path folder = scratch / (std::string(async) + fault);
    Outcome out =
        run({.arguments = with(
                 {mtrain_binary(), "train", recipe, "run.dir=" + folder.string(), async}, ranks),
             .environment = {std::string("MTRAIN_FAULT=") + fault + ":errno=ENOMEM"}});
    CHECK_MESSAGE(out.status == 0, out.err);
    CHECK_MESSAGE(out.out.find("checkpoint of step 5 failed: ") != std::string::npos, out.out);
    CHECK(out.out.find("checkpoint of step 10 failed: ") == std::string::npos);
    CHECK_FALSE(fs::exists(folder / "checkpoints" / "step-5"));
    CHECK(fs::exists(folder / "checkpoints" / "step-40"));
    CHECK(digest(folder) == digest(scratch / "whole"));
  }
}

TEST_CASE("a run that ends by an error keeps the checkpoint that was under way") {
  Scratch scratch("mtrain-async-nan");
  std::string recipe = scratch.write("tiny.yaml", patient_recipe());
  for (const char* fault :
       {"ckpt.p3:2:delay=300,train.loss:12:nan", "ckpt.copy:90:delay=300,train.loss:11:nan"}) {
    CAPTURE(fault);
    fs::path folder = scratch / std::string(fault, 9);
    Outcome out =
        run({.arguments =
                 with({mtrain_binary(), "train", recipe, "run.dir=" + folder.string()}, kAsync),
             .environment = {std::string("MTRAIN_FAULT=") + fault}});
    CHECK(out.status == 14);
    CHECK_MESSAGE(out.err.find("the newest checkpoint is of step 10") != std::string::npos,
                  out.err);
    CHECK(digest_of(folder, 10).size() == 65);
  }
}

TEST_CASE("ranks that fail while the state is copied end in order, with the checkpoint before") {
  Scratch scratch("mtrain-async-fail-copy");
  std::string recipe = scratch.write("tiny.yaml", patient_recipe());
  fs::path folder = scratch / "run";
  Outcome out = run({.arguments = with({mtrain_binary(), "train", recipe,
                                        "run.dir=" + folder.string(), "dist.nproc=2"},
                                       kAsync),
                     .environment = {"MTRAIN_FAULT=ckpt.copy:100:delay=800,train.loss:21:throw"}});
  CHECK(out.status > 0);
  CHECK_MESSAGE(out.status < 128, out.err);  // by no signal
  CHECK(digest_of(folder, 5).size() == 65);
  CHECK_FALSE(fs::exists(folder / "checkpoints" / "step-10"));
  train(recipe, folder, with(kAsync, {"dist.nproc=2"}));
  train(recipe, scratch / "whole", {"dist.nproc=2"});
  CHECK(digest(folder) == digest(scratch / "whole"));
}

TEST_CASE("checkpoints of certain steps are kept for ever") {
  Scratch scratch("mtrain-retain");
  std::string recipe = scratch.write("tiny.yaml", patient_recipe());
  train(recipe, scratch / "run", {"checkpoint.keep=2", "checkpoint.retain_interval=15"});
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(scratch / "run" / "checkpoints"))
    if (std::string name = entry.path().filename().string(); name.starts_with("step-"))
      names.push_back(name);
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"step-15", "step-30", "step-35", "step-40"});
}
