// validation.patience and checkpoint.keep_best: a run that ends when its validation loss no longer
// falls, and the checkpoint of the lowest one.
#include <algorithm>

#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

const Words kValidated = {"train.steps=12", "checkpoint.interval=0", "validation.interval=1",
                          "mixed_precision.dtype=fp32", "validation.steps=1"};
// No validation lowers the loss by as much as this, except the first one.
const char* kNever = "validation.min_improvement=100";

size_t steps_of(const fs::path& folder) { return rows(folder, "loss").size(); }

}  // namespace

TEST_CASE("a run ends after validation.patience validations without a lower loss") {
  Scratch scratch("mtrain-best-patience");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  const Words words = with(kValidated, {"validation.patience=2", kNever});
  const fs::path folder = scratch / "run";
  Outcome out = cli(with({recipe, "run.dir=" + folder.string()}, words));
  CHECK_MESSAGE(out.status == 0, out.err);
  const std::string said = out.out + out.err;
  CHECK_MESSAGE(has(said, "stopping after step 3 of 12: 2 validations in a row have not lowered"),
                said);
  CHECK_MESSAGE(has(said, "lowest validation loss: "), said);
  CHECK(steps_of(folder) == 3);
  CHECK(fs::exists(folder / "checkpoints/step-3"));
  // The end is part of the state.
  Outcome again = cli(with({recipe, "run.dir=" + folder.string()}, words));
  CHECK(again.status == 0);
  CHECK_MESSAGE(has(again.err, "has 3 of 12 steps; its validation loss had stopped falling"),
                again.err);
  CHECK(steps_of(folder) == 3);
  // More patience continues it as if it had been there from the start.
  const Words more = with(kValidated, {"validation.patience=4", kNever});
  train(recipe, folder, more);
  train(recipe, scratch / "whole", more);
  CHECK(steps_of(folder) == 5);
  const std::vector<Json> joined = rows(folder, "loss"), whole = rows(scratch / "whole", "loss");
  REQUIRE(whole.size() == 5);
  CHECK(joined.back().at("loss") == whole.back().at("loss"));
  CHECK(joined.back().at("val_loss") == whole.back().at("val_loss"));
}

TEST_CASE("other samples for validation continue a run that validation.patience had stopped") {
  Scratch scratch("mtrain-best-other");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  const Words words = with(kValidated, {"validation.patience=2", kNever});
  const fs::path folder = scratch / "run";
  train(recipe, folder, words);
  CHECK(steps_of(folder) == 3);
  Outcome out =
      cli(with({recipe, "run.dir=" + folder.string()}, with(words, {"validation.steps=2"})));
  const std::string said = out.out + out.err;
  CHECK_MESSAGE(out.status == 0, said);
  CHECK_MESSAGE(has(said,
                    "their lowest loss is forgotten; the run, which validation.patience had "
                    "stopped, continues"),
                said);
  CHECK_MESSAGE(!has(said, "nothing to do"), said);
  CHECK_MESSAGE(has(said, "continuing after step 3"), said);
  CHECK_MESSAGE(has(said, "stopping after step 6 of 12"), said);
  CHECK(steps_of(folder) == 6);
}

TEST_CASE("all ranks end together, and a loss that falls does not end a run") {
  Scratch scratch("mtrain-best-ranks");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  for (const Words& layout :
       {Words{"dist.nproc=2", "dist.zero=1"}, {"dist.nproc=2", "dist.pp=2"}}) {
    const fs::path folder = scratch / ("run" + layout.back());
    train(recipe, folder, with(with(kValidated, {"validation.patience=3", kNever}), layout));
    CHECK(steps_of(folder) == 4);
  }
  train(recipe, scratch / "falls", with(kValidated, {"validation.patience=1", "train.steps=5"}));
  CHECK(steps_of(scratch / "falls") == 5);
}

int64_t entries(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

TEST_CASE("checkpoint.keep_best keeps the checkpoint of the lowest validation loss") {
  Scratch scratch("mtrain-best-kept");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  // Such a learning rate moves the weights too far after a few steps.
  const Words words =
      with(kValidated, {"checkpoint.keep_best=true", "checkpoint.interval=2", "checkpoint.keep=2",
                        "optimizer.lr=0.05", "rng.seed=3", "scheduler.type=constant",
                        "scheduler.warmup_steps=0", "optimizer.clip_grad=0"});
  for (const char* stop : {"train.steps=12", "train.steps=7"}) {
    CAPTURE(stop);
    const fs::path folder = scratch / stop;
    train(recipe, folder, with(words, {stop}));
    train(recipe, folder, words);  // the second folder is continued
    const std::vector<Json> all = rows(folder, "val_loss");
    REQUIRE(all.size() == 12);
    auto loss = [](const Json& row) {
      return row.at("val_loss").is_number() ? row.at("val_loss").get<double>() : 1e9;
    };
    const auto best = std::min_element(
        all.begin(), all.end(), [&](const Json& a, const Json& b) { return loss(a) < loss(b); });
    const auto step = best->at("step").get<int>();
    CHECK(step < 9);  // else it would be among the newest ones
    CHECK(fs::exists(folder / "checkpoints" / ("step-" + std::to_string(step))));
    CHECK(fs::exists(folder / "checkpoints/step-10"));
    CHECK(fs::exists(folder / "checkpoints/step-12"));
    CHECK(entries(folder / "checkpoints") == 5);  // and run.lock and latest
    const std::string name = "step-" + std::to_string(step),
                      one = (folder / "checkpoints" / name).string();
    for (const std::string& listed : {folder.string(), one}) {
      const Outcome ls = cli({"checkpoint", "ls", listed});
      CHECK_MESSAGE(has(ls.out, "yes, the lowest validation loss: "), ls.out);
    }
    CHECK_FALSE(has(cli({"checkpoint", "ls", (folder / "checkpoints/step-12").string()}).out,
                    "the lowest validation loss"));
    CHECK(has(cli({"runs", "show", folder.string()}).out, ", the lowest validation loss: "));
    for (const Json& rows :
         {Json::parse(cli({"checkpoint", "ls", folder.string(), "--json"}).out),
          Json::parse(cli({"runs", "show", folder.string(), "--json"}).out).at("checkpoints")})
      for (const Json& row : rows) CHECK(row.at("best") == (row.at("step") == step));
    const fs::path early = scratch / (std::string("early-") + stop);
    train(recipe, early, with(words, {"train.steps=" + std::to_string(step + 1)}));
    CHECK(entries(early / "checkpoints") == 4);  // the best one is one of the two newest
    Outcome eval =
        cli({"eval", "--from", (folder / "checkpoints" / ("step-" + std::to_string(step))).string(),
             "--batches", "1", "--json"});
    REQUIRE_MESSAGE(eval.status == 0, eval.err);
    CHECK(std::fabs(Json::parse(eval.out).at("loss").get<double>() / loss(*best) - 1) < 1e-6);
  }
}

TEST_CASE("the best checkpoint stays if that of a better validation cannot be saved") {
  Scratch scratch("mtrain-best-unsaved");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  const fs::path folder = scratch / "run";
  const Words words =
      with(kValidated, {"checkpoint.keep_best=true", "checkpoint.interval=2", "checkpoint.keep=2",
                        "optimizer.lr=0.05", "rng.seed=3", "scheduler.type=constant",
                        "scheduler.warmup_steps=0", "optimizer.clip_grad=0"});
  // The losses of steps 6 and 7 are each the lowest; the fifth save is that of step 7.
  Outcome out =
      run({.arguments = with({mtrain_binary(), recipe, "run.dir=" + folder.string()}, words),
           .environment = {"MTRAIN_FAULT=ckpt.p2:5:errno=ENOSPC"}});
  const std::string said = out.out + out.err;
  CHECK_MESSAGE(out.status == 0, said);
  REQUIRE_MESSAGE(has(said, "lowest validation loss: "), said);
  CHECK_MESSAGE(has(said, " after step 7\n"), said);  // without a folder
  CHECK(fs::exists(folder / "checkpoints/step-6"));
  CHECK_FALSE(fs::exists(folder / "checkpoints/step-7"));
  CHECK_FALSE(fs::exists(folder / "checkpoints/step-8"));
  // A run that continues compares with what it has.
  Outcome again =
      cli(with(with({recipe, "run.dir=" + folder.string()}, words), {"train.steps=13"}));
  const std::string then = again.out + again.err;
  bool named = false;
  for (const char* step : {"6", "13"})
    named |= has(then, std::string(" after step ") + step + ", ") &&
             fs::exists(folder / "checkpoints" / (std::string("step-") + step));
  CHECK_MESSAGE(named, then);
}
