// A stranger's view: mtrain is installed somewhere, moved, and two plugins are built against it as
// projects of their own, dropped in, checked and trained.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "installed.h"
#include "roots.h"

using namespace mtrain;
using testing::must;
using testing::Outcome;

namespace {

const fs::path kSources = testing::source_root() / "tests/fixtures/plugins/out_of_tree";

std::vector<double> losses(const fs::path& run) {
  std::vector<double> out;
  std::ifstream file(run / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    auto step = nlohmann::json::parse(line);
    if (step.at("loss").is_number()) out.push_back(step.at("loss").get<double>());
  }
  return out;
}

const char* const kRecipe =
    "model: {type: tiny_model, hidden_size: 32, seq_length: 32}\n"
    "dataset: mock\n"
    "train: {steps: 40, micro_batch_size: 4, global_batch_size: 4}\n"
    "optimizer: {type: my_lion, lr: 3e-3, beta2: 0.98}\n"
    "scheduler: {warmup_steps: 2}\n"
    "checkpoint: {interval: 20}\n"
    "validation: {interval: 40, steps: 1}\n"
    "logger: {tensorboard: false}\n";

}  // namespace

TEST_CASE("an optimizer and a model outside the tree are built, dropped in and trained") {
  const testing::Installed& installed = testing::installed();
  for (const char* part :
       {"bin/mtrain", "lib/libmtrain_core.so", "lib/mtrain/plugins/model_llama.so",
        "lib/mtrain/plugins/model_llama.json", "include/mtrain/plugin/plugin.h",
        "include/mtrain/plugin/abi_hash.h", "include/mtrain/nn/layers.h",
        "lib/cmake/mtrain/mtrainConfig.cmake", "lib/cmake/mtrain/mtrainTargets.cmake",
        "lib/cmake/mtrain/MtrainPlugin.cmake", "share/mtrain/recipes/quickstart.yaml"}) {
    INFO(part);
    CHECK(fs::exists(installed.prefix / part));
  }
  must({installed.mtrain, "--version"});
  CHECK(must({installed.mtrain, "plugins", "ls"}).out.find("unusable") == std::string::npos);

  fs::path lion = installed.build(kSources / "lion").folder,
           model = installed.build(kSources / "tiny_model").folder;
  CHECK(fs::exists(lion / "optimizer_my_lion.so"));
  CHECK(fs::exists(lion / "optimizer_my_lion.json"));
  CHECK(fs::exists(model / "model_tiny_model.json"));
  // One is found through the environment, the other is in the folder of the built-in ones.
  for (const char* file : {"model_tiny_model.so", "model_tiny_model.json"})
    fs::copy_file(model / file, installed.prefix / "lib/mtrain/plugins" / file);
  std::vector<std::string> path = {"MTRAIN_PLUGIN_PATH=" + lion.string()};
  CHECK(must({installed.mtrain, "plugins", "inspect", "my_lion"}, path)
            .out.find("beta2: number >= 0") != std::string::npos);

  fs::path recipe = installed.folder / "tiny.yaml";
  std::ofstream(recipe) << kRecipe;
  must({installed.mtrain, "check", recipe.string()}, path);
  fs::path run = installed.folder / "run";
  must({installed.mtrain, recipe.string(), "run.dir=" + run.string()}, path);
  std::vector<double> curve = losses(run);
  REQUIRE(curve.size() >= 40);
  MESSAGE("loss " << curve.front() << " -> " << curve.back());
  CHECK(curve.back() < curve.front() - 0.2);

  Outcome wrong =
      testing::run({.arguments = {installed.mtrain, "check", recipe.string(), "optimizer.beta3=1"},
                    .environment = path});
  CHECK(wrong.status == 10);
  CHECK(wrong.err.find("optimizer.beta2") != std::string::npos);
  Outcome absent = testing::run({.arguments = {installed.mtrain, "check", recipe.string()}});
  CHECK(absent.status == 10);
  CHECK(absent.err.find("my_lion") != std::string::npos);
}

TEST_CASE("an objective outside the tree is built, and learns from preferences") {
  const testing::Installed& installed = testing::installed();
  const fs::path built = installed.build(kSources / "margin").folder;
  const std::vector<std::string> path = {"MTRAIN_PLUGIN_PATH=" + built.string()};
  const fs::path recipe = installed.folder / "margin.yaml", run = installed.folder / "margin-run";
  std::ofstream(recipe)
      << "model: {type: llama, layers: 1, hidden_size: 32, heads: 2, ffn_hidden_size: 64, "
         "seq_length: 32}\n"
         "dataset: {type: mock, answers: 2}\nobjective: {type: margin, margin: 2}\n"
         "train: {steps: 30, micro_batch_size: 4, global_batch_size: 4}\n"
         "optimizer: {type: adamw, lr: 3e-3}\nvalidation: {steps: 1}\n"
         "logger: {tensorboard: false}\n";
  must({installed.mtrain, "check", recipe.string()}, path);
  CHECK(must({installed.mtrain, "plugins", "ls"}, path).out.find("margin") != std::string::npos);
  must({installed.mtrain, recipe.string(), "run.dir=" + run.string()}, path);
  const std::vector<double> curve = losses(run);
  REQUIRE(curve.size() == 30);
  CHECK(curve.front() == doctest::Approx(4).epsilon(1e-5));  // (0 - 2)^2 at the reference
  CHECK(curve.back() < 1.5);
}
