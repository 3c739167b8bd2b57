// A model whose settings have names of their own (tests/fixtures/plugins/own_names_model.cc): all
// that mtrain computes from a model's sizes finds them by the facts that the model publishes.
#include "../cli/training_run.h"
#include "roots.h"

using namespace mtrain::testing;

namespace {

const Words kPlugins = {"MTRAIN_PLUGIN_PATH=" + (build_root() / "tests/plugins").string()};

std::string recipe_text() {
  return quant_recipe(
      "type: own_names, blocks: 4, width: 64, query_heads: 8, query_groups: 2, "
      "inner_width: 128, seq_length: 32",
      "train: {steps: 4, micro_batch_size: 1, global_batch_size: 4}\n"
      "optimizer: {lr: 2e-3, clip_grad: 0}\nscheduler: {warmup_steps: 0}\n"
      "checkpoint: {interval: 4}\nvalidation: {interval: 4, steps: 1}\n");
}

void train_own(const std::string& recipe, const std::filesystem::path& folder, const Words& words) {
  Outcome out = cli(with({recipe, "-q", "run.dir=" + folder.string()}, words), kPlugins);
  REQUIRE_MESSAGE(out.status == 0, text(words), out.err);
}

Json bench(const std::string& recipe, const Words& words) {
  Outcome out =
      cli(with({"bench", recipe, "--steps", "2", "--warmup", "1", "--json", "--plain"}, words),
          kPlugins);
  REQUIRE_MESSAGE(out.status == 0, text(words), out.err);
  return Json::parse(out.out);
}

}  // namespace

TEST_CASE("a model with names of its own trains in every layout as on one rank") {
  Scratch scratch("mtrain-own-names");
  const std::string recipe = scratch.write("own.yaml", recipe_text());
  train_own(recipe, scratch / "1", {});
  const std::vector<Json> expected = rows(scratch / "1", "grad_norm");
  REQUIRE(expected.size() == 4);
  const std::vector<Words> layouts = {
      {"dist.nproc=4", "dist.tp=4"},  // two ranks share a group
      {"dist.nproc=4", "dist.tp=4", "dist.sp=true", "comm_overlap.tp=true"},
      {"dist.nproc=2", "dist.pp=2"},
      {"dist.nproc=2", "dist.pp=2", "dist.first_stage_layers=1"},
      {"model.recompute=selective", "model.recompute_modules=[layernorm]"},
      {"model.recompute=selective", "model.recompute_modules=[layernorm, mlp]"},
  };
  for (const Words& layout : layouts) {
    const std::string words = text(layout);
    CAPTURE(words);
    const std::filesystem::path folder = scratch / "run";
    train_own(recipe, folder, layout);
    const std::vector<Json> seen = rows(folder, "grad_norm");
    REQUIRE(seen.size() == expected.size());
    for (size_t i = 0; i < seen.size(); ++i) {
      CHECK(apart(seen[i], expected[i], "loss") < 1e-5);
      CHECK(apart(seen[i], expected[i], "grad_norm") < 1e-4);
    }
    std::filesystem::remove_all(folder);
  }
}

TEST_CASE("rules and the plan of memory know the sizes of a model with names of its own") {
  Scratch scratch("mtrain-own-rules");
  const std::string recipe = scratch.write("own.yaml", recipe_text());
  struct Row {
    Words words;
    std::vector<std::string> parts;
  };
  const Row rows[] = {
      {{"dist.nproc=3", "dist.tp=3"}, {"tp-divides-heads", "model.query_heads (8)"}},
      {{"dist.nproc=3", "dist.pp=3"}, {"layers-per-stage", "4 blocks"}},
      {{"model.query_groups=3"}, {"kv-heads-divide-heads", "model.query_groups"}},
      {{"offload.layers=4"}, {"offload-layers", "not below model.blocks (4)", "offload.layers=3"}},
  };
  for (const Row& row : rows) {
    Outcome out = cli(with({"check", recipe}, row.words), kPlugins);
    CHECK(out.status == 10);
    for (const std::string& part : row.parts)
      CHECK_MESSAGE(out.err.find(part) != std::string::npos, part, " in ", out.err);
  }
  const Json small = bench(recipe, {}), large = bench(recipe, {"model.blocks=8"});
  CHECK(small["planned_memory"] == small["tensor_memory"]);
  CHECK(large["planned_memory"] == large["tensor_memory"]);
  CHECK(large["planned_memory"]["uses"]["parameters"].get<int64_t>() >
        small["planned_memory"]["uses"]["parameters"].get<int64_t>());
  Outcome layouts =
      cli({"verify", "layouts", recipe, "--ranks", "2", "--steps", "2", "--only", "pp2"}, kPlugins);
  CHECK_MESSAGE(layouts.status == 0, layouts.out, layouts.err);
}
