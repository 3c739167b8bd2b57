// What a run leaves behind says all there is to know about it, and is enough to repeat it bit for bit.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "shell.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

std::vector<std::string> losses(const fs::path& run) {
  std::vector<std::string> out;
  std::stringstream lines(slurp(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) out.push_back(json::parse(line).at("loss").dump());
  return out;
}

std::string short_recipe() {
  return "defaults: [{optimizer: mine}, _self_]\n" + tiny_recipe() +
         "rng: {seed: '${oc.env:MTRAIN_TEST_SEED}'}\n";
}

}  // namespace

TEST_CASE("a run keeps its recipe, the files it is made of, the overrides, the origins and the program") {
  Scratch scratch("mtrain-saved");
  write_at(scratch / "optimizer/mine.yaml", "# ours\nbeta2: 0.9\n");
  std::string r = scratch.write("r.yaml", short_recipe());
  REQUIRE(cli({r, "run.dir=" + (scratch / "a").string(), "train.steps=4", "scheduler.warmup_steps=1", "-q"},
              {"MTRAIN_TEST_SEED=77"})
              .status == 0);
  fs::path config = scratch / "a/config";
  CHECK(slurp(config / "recipe.yaml") == short_recipe());
  CHECK(slurp(config / "files/optimizer/mine.yaml") == "# ours\nbeta2: 0.9\n");
  CHECK(has(slurp(config / "overrides.txt"), "train.steps=4\n"));
  CHECK(has(slurp(config / "resolved.yaml"), "seed: 77"));
  json origins = json::parse(slurp(config / "provenance.json"));
  CHECK(origins.at("rng.seed").at("expression") == "${oc.env:MTRAIN_TEST_SEED}");
  CHECK(origins.at("train.steps").at("where") == "command line, argument 3");
  CHECK(origins.at("train.steps").at("shadowed").at(0).at("value") == "40");
  CHECK(origins.at("optimizer.beta2").at("line") == 2);
  json environment = json::parse(slurp(config / "environment.json"));
  CHECK(environment.at("binaries").at("mtrain").get<std::string>().size() == 64);
  CHECK(environment.at("binaries").at("libmtrain_core.so").get<std::string>().size() == 64);
  CHECK(environment.at("plugins").size() == 4);
  CHECK_FALSE(has(environment.dump(), "MTRAIN_TEST_SEED"));
  json manifest = json::parse(slurp(scratch / "a/checkpoints/step-4/manifest.json"));
  CHECK(has(manifest.dump(), "MTRAIN_TEST_SEED"));  // the recipe's text, in the checkpoint too
  CHECK(has(manifest.dump(), "libmtrain_core.so"));
}

TEST_CASE("rerun: from the saved text alone, into a new folder, the same bits") {
  Scratch scratch("mtrain-rerun");
  write_at(scratch / "optimizer/mine.yaml", "beta2: 0.9\n");
  std::string r = scratch.write("r.yaml", short_recipe());
  fs::path a = scratch / "a";
  REQUIRE(cli({r, "run.dir=" + a.string(), "train.steps=6", "-q"}, {"MTRAIN_TEST_SEED=77"}).status == 0);
  fs::remove(scratch / "r.yaml");
  fs::remove_all(scratch / "optimizer");
  Outcome again = cli({"rerun", a.string(), "-q"});
  CHECK_MESSAGE(again.status == 0, again.err);
  CHECK_FALSE(has(again.err, "not as in"));
  REQUIRE(losses(a).size() == 6);
  CHECK(losses(scratch / "a-rerun") == losses(a));
  CHECK(digest(scratch / "a-rerun") == digest(a));
  Outcome from_checkpoint =
      cli({"rerun", (a / "checkpoints/step-5").string(), "train.steps=3", "scheduler.warmup_steps=1"});
  CHECK_MESSAGE(from_checkpoint.status == 0, from_checkpoint.err);
  CHECK(losses(scratch / "a-rerun-2").size() == 3);
  CHECK(cli({"rerun", (scratch / "nowhere").string()}).status == 12);

  // Hashes that differ are told.
  json environment = json::parse(slurp(a / "config/environment.json"));
  environment["binaries"]["mtrain"] = std::string(64, '0');
  write_at(a / "config/environment.json", environment.dump());
  Outcome warned = cli({"rerun", a.string(), "train.steps=5"});
  CHECK(warned.status == 0);
  CHECK_MESSAGE(has(warned.err, "another build of mtrain"), warned.err);
}

TEST_CASE("rerun: data that have changed are refused in the words of a resume, unless the user asks for others") {
  Scratch scratch("mtrain-rerun-data");
  for (const char* text : {"one two three four five six seven eight nine ten", "other words than those of the first text, and more of them"}) {
    scratch.write("text.txt", std::string(text) + " " + text + "\n\n" + text + "\n");
    const std::string prepare = "data prepare -i text.txt -o data -t byte --split-on blank-lines --force -q";
    Outcome prepared = cli_in(scratch.path(), prepare);
    REQUIRE_MESSAGE(prepared.status == 0, prepared.err);
    if (fs::exists(scratch / "a")) break;
    scratch.write("r.yaml", tiny_recipe());
    Outcome trained = cli_in(scratch.path(), "r.yaml dataset.type=gpt +dataset.path=data \"dataset.split='50,50,0'\" tokenizer=byte model.seq_length=8 "
                                             "train.steps=3 scheduler.warmup_steps=1 -q run.dir=a");
    REQUIRE_MESSAGE(trained.status == 0, trained.err);
    REQUIRE(cli_in(scratch.path(), "rerun a -q").status == 0);
  }
  Outcome resumed = cli_in(scratch.path(), "rerun a train.steps=4");
  CHECK(resumed.status == 12);
  CHECK_MESSAGE(has(resumed.err, "data: data has other contents: data.bin had "), resumed.err);
  CHECK(has(resumed.err, "dataset.path="));
  CHECK_FALSE(has(resumed.err, "{"));
  CHECK_FALSE(fs::exists(scratch / "a-rerun-2"));
  Outcome wanted = cli_in(scratch.path(), "rerun a dataset.path=data");
  CHECK_MESSAGE(wanted.status == 0, wanted.err);
  CHECK_MESSAGE(has(wanted.err, "not as in a: data: data has other contents"), wanted.err);
}

TEST_CASE("runs/latest means the newest run, and rerun follows it") {
  Scratch scratch("mtrain-latest");
  scratch.write("one.yaml", tiny_recipe());
  scratch.write("two.yaml", tiny_recipe());
  for (const char* name : {"one", "two"}) {
    CHECK(cli_in(scratch.path(), std::string(name) + ".yaml train.steps=1 scheduler.warmup_steps=0 -q")
              .status == 0);
    CHECK(fs::read_symlink(scratch / "runs/latest") == name);
  }
  CHECK(cli_in(scratch.path(), "rerun runs/latest -q").status == 0);
  CHECK(fs::exists(scratch / "runs/two-rerun"));
  CHECK(fs::read_symlink(scratch / "runs/latest") == "two-rerun");
  CHECK(cli_in(scratch.path(), "config diff runs/one runs/latest").status == 0);
}

TEST_CASE("resuming tells every change by its class, and who made it") {
  Scratch scratch("mtrain-resume");
  std::string r = scratch.write("r.yaml", tiny_recipe()), run_dir = "run.dir=" + (scratch / "r").string();
  REQUIRE(cli({r, run_dir, "train.steps=5", "-q"}).status == 0);
  Outcome refused =
      cli({r, run_dir, "train.steps=6", "model.hidden_size=64", "optimizer.lr=1e-3", "checkpoint.keep=5"});
  CHECK(refused.status == 12);
  CHECK_MESSAGE(has(refused.err, "model.hidden_size: 32 -> 64"), refused.err);
  CHECK_MESSAGE(has(refused.err, "command line, argument 4"), refused.err);
  CHECK_FALSE(has(refused.err, "optimizer.lr"));  // what may change is no reason
  Outcome changed = cli({r, run_dir, "train.steps=6", "optimizer.lr=1e-3", "checkpoint.keep=5"});
  CHECK_MESSAGE(changed.status == 0, changed.err);
  CHECK_MESSAGE(has(changed.err, "optimizer.lr: 0.002 -> 0.001   (command line, argument 4; before: " + r),
                changed.err);
  CHECK_FALSE(has(changed.err, "checkpoint.keep"));
}
