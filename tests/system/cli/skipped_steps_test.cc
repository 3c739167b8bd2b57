// Runs whose steps differ: train.skip_steps, optimizer.skip_grad_norm, train.max_minutes,
// train.batch_schedule, checkpoint rewind.
#include <map>

#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

/// The loss of each step that has a row, by step.
std::map<int64_t, double> losses(const fs::path& folder) {
  std::map<int64_t, double> out;
  for (const Json& row : rows(folder, "grad_norm"))
    if (row.at("loss").is_number())
      out[row.at("step").get<int64_t>()] = row.at("loss").get<double>();
  return out;
}

}  // namespace

TEST_CASE(
    "the data of a step in train.skip_steps is read past, and the steps after it are as if its "
    "update had been skipped") {
  Scratch scratch("mtrain-skip-steps");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  const Words base = {"train.steps=6", "checkpoint.interval=0"};
  // A loss that is not finite at step 3 (the third call) skips this update alone.
  Outcome nan =
      run({.arguments = with({mtrain_binary(), recipe, "-q",
                              "run.dir=" + (scratch / "nan").string(), "train.on_nonfinite=skip"},
                             base),
           .environment = {"MTRAIN_FAULT=train.loss:3:nan"}});
  REQUIRE_MESSAGE(nan.status == 0, nan.err);
  Outcome skip =
      cli(with({recipe, "run.dir=" + (scratch / "skip").string(), "train.skip_steps=[3]"}, base));
  REQUIRE_MESSAGE(skip.status == 0, skip.err);
  CHECK_MESSAGE(has(skip.out + skip.err, "step 3: skipped because of train.skip_steps"), skip.out,
                skip.err);
  std::vector<int64_t> steps;
  for (const Json& row : rows(scratch / "skip", "step"))
    steps.push_back(row.at("step").get<int64_t>());
  CHECK(steps == std::vector<int64_t>{1, 2, 3, 4, 5, 6});
  CHECK(rows(scratch / "skip", "step").at(2).at("loss").is_null());
  train(recipe, scratch / "whole", base);
  auto skipped = losses(scratch / "skip"), whole = losses(scratch / "whole"),
       expected = losses(scratch / "nan");
  expected.erase(3);
  CHECK(skipped.size() == 5);
  CHECK(skipped == expected);
  CHECK(skipped.at(6) != whole.at(6));
  // A run that stops between the steps continues to the same losses.
  for (int part = 0; part < 3; ++part)
    train(recipe, scratch / "parts",
          with(base, {"train.skip_steps=[3, 4]", "train.max_minutes=1e-9"}));
  train(recipe, scratch / "parts", with(base, {"train.skip_steps=[3, 4]"}));
  train(recipe, scratch / "once", with(base, {"train.skip_steps=[3, 4]"}));
  auto once = losses(scratch / "once");
  CHECK(once.size() == 4);
  CHECK(losses(scratch / "parts") == once);
}

TEST_CASE(
    "optimizer.skip_grad_norm skips updates with a larger gradient norm, and train.max_skips "
    "bounds them") {
  Scratch scratch("mtrain-skip-norm");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  const Words base = {"train.steps=6", "checkpoint.interval=0"};
  train(recipe, scratch / "whole", base);
  train(recipe, scratch / "never", with(base, {"optimizer.skip_grad_norm=1e9"}));
  auto whole = losses(scratch / "whole");
  CHECK(losses(scratch / "never") == whole);
  Outcome always = run_training(recipe, scratch / "always",
                                with(base, {"optimizer.skip_grad_norm=1e-9", "train.max_skips=3"}));
  CHECK_MESSAGE(always.status == 14, always.err);
  CHECK_MESSAGE(has(always.err,
                    "at step 4 is above optimizer.skip_grad_norm=1e-09, and the 3 updates before "
                    "it were skipped"),
                always.err);
  // An interruption does not start the count again.
  const Words two = {"optimizer.skip_grad_norm=1e-9", "train.max_skips=3"};
  train(recipe, scratch / "parts", with(with(base, two), {"train.steps=2"}));
  Outcome parts = run_training(recipe, scratch / "parts", with(base, two));
  CHECK(parts.status == 14);
  CHECK_MESSAGE(has(parts.err, "at step 4 is above optimizer.skip_grad_norm=1e-09"), parts.err);
  Outcome all = cli(with(
      {recipe, "run.dir=" + (scratch / "all").string(), "optimizer.skip_grad_norm=1e-9"}, base));
  CHECK_MESSAGE(has(all.out + all.err, "update skipped, because the gradient norm"), all.out,
                all.err);
  // Nothing was updated: a validation is as before training.
  train(recipe, scratch / "frozen",
        with(base, {"optimizer.lr=0", "scheduler.min_lr=0", "optimizer.weight_decay=0"}));
  CHECK(losses(scratch / "all") == losses(scratch / "frozen"));
}

TEST_CASE("train.max_minutes saves and stops, and the same command continues to the same losses") {
  Scratch scratch("mtrain-max-minutes");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  const Words base = {"train.steps=4", "checkpoint.interval=0"};
  train(recipe, scratch / "whole", base);
  auto whole = losses(scratch / "whole");
  for (int part = 1; part <= 4; ++part) {  // a limit that any step exceeds
    Outcome out = cli(
        with({recipe, "run.dir=" + (scratch / "parts").string(), "train.max_minutes=1e-9"}, base));
    CHECK_MESSAGE(out.status == 0, out.err);
    CHECK(losses(scratch / "parts").size() == static_cast<size_t>(part));
    CHECK(has(out.out + out.err, "has passed after step") == (part < 4));
  }
  CHECK(losses(scratch / "parts") == whole);
}

TEST_CASE(
    "a run that goes back to an older checkpoint makes the same steps again, or others with "
    "train.skip_steps") {
  Scratch scratch("mtrain-rewind");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  const fs::path folder = scratch / "run";
  train(recipe, folder, {"train.steps=20"});
  const std::string end = digest(folder);
  const auto whole = losses(folder);
  Outcome back = cli({"checkpoint", "rewind", folder.string(), "--step", "10"});
  CHECK_MESSAGE(back.status == 0, back.err);
  CHECK_MESSAGE(has(back.out, "the run continues from step 10"), back.out);
  CHECK(fs::exists(folder / "checkpoints" / "set-aside-1" / "step-20"));
  train(recipe, folder, {"train.steps=20"});
  CHECK(digest(folder) == end);
  CHECK(losses(folder) == whole);
  CHECK(cli({"checkpoint", "rewind", folder.string(), "--step", "10"}).status == 0);
  train(recipe, folder, {"train.steps=20", "train.skip_steps=[13]"});
  auto other = losses(folder);
  CHECK(other.count(13) == 0);
  CHECK(other.size() == 19);
  CHECK(other.at(13 - 1) == whole.at(13 - 1));
  CHECK(other.at(20) != whole.at(20));
  Outcome absent = cli({"checkpoint", "rewind", folder.string(), "--step", "7"});
  CHECK(absent.status == 12);
  CHECK_MESSAGE(has(absent.err, "the run cannot go back to step 7"), absent.err);
}

TEST_CASE(
    "train.batch_schedule gives each step its batch, with the losses of a run whose batch is "
    "changed by hand") {
  Scratch scratch("mtrain-batch-schedule");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  const Words base = {"train.steps=6", "checkpoint.interval=0"},
              ramp = {"train.global_batch_size=0", "train.batch_schedule=['0:4','3:8']"};
  const fs::path by_hand = scratch / "by_hand";
  for (int step = 0; step < 3; ++step)
    train(recipe, by_hand, with(base, {"train.max_minutes=1e-9"}));
  train(recipe, by_hand, with(base, {"train.global_batch_size=8"}));
  const auto expected = losses(by_hand);
  REQUIRE(expected.size() == 6);
  train(recipe, scratch / "ramp", with(base, ramp));
  CHECK(losses(scratch / "ramp") == expected);
  CHECK(rows(scratch / "ramp", "tokens").back().at("tokens") == (3 * 4 + 3 * 8) * 32);
  // A run that stops at each step, and layouts.
  for (int step = 0; step < 6; ++step)
    train(recipe, scratch / "parts", with(with(base, ramp), {"train.max_minutes=1e-9"}));
  CHECK(losses(scratch / "parts") == expected);
  CHECK(digest(scratch / "parts") == digest(scratch / "ramp"));
  int number = 0;
  for (const Words& layout : {Words{"dist.nproc=2"}, Words{"dist.nproc=2", "dist.pp=2"}}) {
    CAPTURE(layout.back());
    const fs::path folder = scratch / ("layout" + std::to_string(number++));
    train(recipe, folder, with(with(base, ramp), layout));
    for (const auto& [step, loss] : losses(folder))
      CHECK(std::fabs(loss / expected.at(step) - 1) < 1e-5);
  }
  Outcome head = cli(with(with({recipe, "run.dir=" + (scratch / "head").string()}, base), ramp));
  CHECK_MESSAGE(has(head.out + head.err, "batch  (4, from step 4 on 8) x 32 tokens per step"),
                head.out, head.err);
  Outcome check = cli(with(with({"check", recipe}, base), ramp));
  CHECK_MESSAGE(has(check.out, "6 steps of (4, from step 4 on 8) x 32 tokens = "), check.out);
  CHECK(cli({"check", recipe, "train.global_batch_size=0", "train.batch_schedule=['0:4','3:5']"})
            .status == 10);
}
