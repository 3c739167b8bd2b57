// Where recipes and groups are found, how a recipe may be said, and what a recipe can ask about its
// run.
#include <doctest/doctest.h>

#include "shell.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

std::string named_run(const std::string& name) {
  return tiny_recipe() + "run: {name: " + name + "}\n";
}

}  // namespace

TEST_CASE(
    "the nearest folder of the search path wins: recipe's own, project, plugins, user, built-in") {
  Scratch scratch("mtrain-search");
  fs::path work = scratch / "work", home = scratch / "home", plugins = scratch / "plugins";
  write_at(work / "own.d/r.yaml", "defaults: [{scheduler: s}, _self_]\n" + tiny_recipe());
  const std::vector<std::pair<fs::path, std::string>> places = {{home / "mtrain", "1"},
                                                                {plugins / "recipes", "2"},
                                                                {work / "recipes", "3"},
                                                                {work / "own.d", "4"}};
  for (const auto& [folder, warmup] : places) {
    write_at(folder / "scheduler/s.yaml", "stable_steps: " + warmup + "\n");
    Outcome outcome =
        cli_in(work, "--plugin-path " + plugins.string() + " check own.d/r.yaml --resolved", home);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    CHECK_MESSAGE(has(outcome.out, "stable_steps: " + warmup + "\n"), folder);
  }
}

TEST_CASE("a recipe is a path, a name, or standard input") {
  Scratch scratch("mtrain-names");
  fs::path work = scratch / "work";
  write_at(work / "recipes/mine.yaml", named_run("project-one"));
  write_at(work / "recipes/deep/er.yaml", named_run("deeper"));
  fs::create_directories(work / "mine");  // a folder of that name is no recipe
  Outcome by_name = cli_in(work, "check mine"), by_path = cli_in(work, "check recipes/mine.yaml"),
          group = cli_in(work, "check deep/er"),
          input = cli_in(work, "check - < recipes/mine.yaml"),
          bare = cli_in(work, "- train.steps=0 -q run.name='' < recipes/mine.yaml");
  CHECK_MESSAGE(has(by_name.out, "runs/project-one"), by_name.err);
  CHECK_MESSAGE(has(by_path.out, "runs/project-one"), by_path.err);
  CHECK_MESSAGE(has(group.out, "runs/deeper"), group.err);
  CHECK_MESSAGE(has(input.out, "stdin: ok"), input.err);
  CHECK_MESSAGE(bare.status == 0, bare.err);
  CHECK(fs::exists(work / "runs/stdin"));
  Outcome broken = cli_in(work, "check - < /dev/null");
  CHECK(broken.status == 10);
  Outcome builtin = cli_in(work, "check quickstart dataset.path=recipes");
  CHECK_MESSAGE(builtin.status == 0, builtin.err);
  Outcome wrong = cli_in(work, "check mien");
  CHECK(wrong.status == 10);
  CHECK_MESSAGE(has(wrong.err, "did you mean mine?"), wrong.err);
  // The same help for every command that takes a recipe.
  for (const char* words : {"zzqqxx", "train zzqqxx", "check zzqqxx", "recipes cp zzqqxx x.yaml",
                            "config show zzqqxx"}) {
    Outcome absent = cli_in(work, words);
    CHECK(absent.status == 10);
    CHECK_MESSAGE(has(absent.err, "recipes ls"), words, absent.err);
    CHECK_MESSAGE(has(absent.err, "searched for the file"), words, absent.err);
  }
  write_at(work / "base.yaml", named_run("base"));
  CHECK(has(cli_in(work, "check base.yml").err, "did you mean base.yaml"));
  CHECK(has(cli_in(work, "recipes cp base.yml x.yaml").err, "did you mean base.yaml"));
  CHECK(has(cli_in(work, "check recipes/mien.yaml").err, "did you mean recipes/mine.yaml?"));
}

TEST_CASE(
    "the settings may stand before the recipe, and each fault names its place on the command "
    "line") {
  Scratch scratch("mtrain-places");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  Outcome first = cli({"check", "train.steps=7", recipe, "--resolved"});
  CHECK_MESSAGE(has(first.out, "steps: 7"), first.err);
  Outcome fault = cli({"-q", "check", recipe, "train.steps=7", "optimizer.lr=-1"});
  CHECK_MESSAGE(has(fault.err, "command line, argument 5: optimizer.lr=-1"), fault.err);
  CHECK(cli({"check", "train.steps=7"}).status == 2);
}

TEST_CASE("warnings of a recipe that is in order are shown") {
  Scratch scratch("mtrain-warnings");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  Outcome old = cli({"check", recipe, "train.train_iters=7", "--resolved"});
  CHECK(old.status == 0);  // an override counts, whichever name it says
  CHECK_MESSAGE(has(old.out, "steps: 7"), old.out);
  CHECK_MESSAGE(has(old.err, "warning[renamed] train.train_iters: is another name for train.steps"),
                old.err);
  recipe = scratch.write(
      "old.yaml", "model: {type: llama, num_layers: 2}\ndataset: mock\ntrain: {train_iters: 5}\n");
  Outcome warned = cli({"check", recipe}), quiet = cli({"check", recipe, "-q"});
  CHECK(warned.status == 0);
  CHECK_MESSAGE(
      has(warned.err, "warning[renamed] train.train_iters: is another name for train.steps"),
      warned.err);
  CHECK(quiet.err == warned.err);  // -q leaves warnings
}

TEST_CASE("a recipe can ask about its run") {
  Scratch scratch("mtrain-resolvers");
  std::string recipe = scratch.write(
      "asks.yaml",
      tiny_recipe() + "run: {name: '${run:name}-${world_size:}', dir: '${recipe_dir:}/out'}\n");
  Outcome outcome = cli({"check", recipe, "--resolved"});
  CHECK_MESSAGE(has(outcome.out, "name: asks-1"), outcome.out, outcome.err);
  CHECK_MESSAGE(has(outcome.out, "dir: " + scratch.path().string() + "/out"), outcome.out);
  Outcome unknown = cli({"check", recipe, "run.dir='${run:colour}'"});
  CHECK(unknown.status == 10);
  CHECK_MESSAGE(has(unknown.err, "run has the properties name, recipe"), unknown.err);
}

TEST_CASE("a plugin's name stays a value where no defaults list has the group") {
  Scratch scratch("mtrain-sugar");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  write_at(scratch / "optimizer/adamw.yaml", "beta2: 0.5\n");
  Outcome value = cli({"check", recipe, "optimizer=adamw", "--resolved"});
  CHECK_MESSAGE(value.status == 0, value.err);
  CHECK_MESSAGE(!has(value.out, "beta2: 0.5"), value.out);
  std::string listed =
      scratch.write("listed.yaml", "defaults: [{optimizer: null}, _self_]\n" + tiny_recipe());
  Outcome choice = cli({"check", listed, "optimizer=adamw", "--resolved"});
  CHECK_MESSAGE(has(choice.out, "beta2: 0.5"), choice.err);
  Outcome added = cli({"check", recipe, "+optimizer=adamw", "--resolved"});
  CHECK_MESSAGE(has(added.out, "beta2: 0.5"), added.err);
}

TEST_CASE("faults of keys and of rules come in one report") {
  Scratch scratch("mtrain-merged");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  Outcome both = cli({"check", recipe, "optimizr.lr=1", "train.global_batch_size=5"});
  CHECK_MESSAGE(has(both.err, "optimizr.lr"), both.err);
  CHECK_MESSAGE(has(both.err, "global-batch"), both.err);
}
