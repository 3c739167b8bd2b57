// The optimizers sgd, lion and muon: every layout trains as one rank, and an interrupted run ends
// as an uninterrupted one.
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

struct OptimizerCase {
  const char* name;
  Words words;
};

// Weight decay is that of the recipe: of matrices only.
const OptimizerCase kOptimizers[] = {
    {"sgd", {"optimizer={type: sgd, lr: 0.05, momentum: 0.9, nesterov: true}"}},
    {"lion", {"optimizer={type: lion, lr: 5e-4}"}},
    {"muon", {"optimizer={type: muon, lr: 2e-3}"}},
    {"muon_lion",
     {"optimizer={type: muon, lr: 5e-3, scale: spectral, nesterov: false, other: {type: lion, "
      "lr_ratio: 0.1}}"}},
    {"muon_sgd", {"optimizer={type: muon, lr: 2e-3, other: {type: sgd, lr_ratio: 20}}"}},
};

std::string optimizer_recipe(const std::string& model) {
  return quant_recipe(model + ", layers: 2, hidden_size: 48, heads: 4, kv_heads: 2, seq_length: 32",
                      "train: {steps: 6, micro_batch_size: 2, global_batch_size: 4}\n"
                      "mixed_precision: {dtype: fp32}\nscheduler: {warmup_steps: 2}\n"
                      "checkpoint: {interval: 3}\nvalidation: {interval: 6, steps: 1}\n");
}
const char* const kLlama = "type: llama, ffn_hidden_size: 104";
const char* const kMoe =
    "type: moe, ffn_hidden_size: 64, moe: {experts: 4, top_k: 2, ffn_hidden_size: 40, router: "
    "{balancing: [none], aux_loss_coeff: [0]}}";

void check_as_one_rank(const std::string& recipe, const Scratch& scratch, const Words& optimizer,
                       const std::vector<Words>& layouts) {
  train(recipe, scratch / "one", optimizer);
  const std::vector<Json> want = rows(scratch / "one", "grad_norm");
  REQUIRE(want.size() == 6);
  CHECK(want.back()["loss"].get<double>() < want.front()["loss"].get<double>());
  for (const Words& layout : layouts) {
    const std::string words = text(layout);
    CAPTURE(words);
    train(recipe, scratch / "layout", with(optimizer, layout));
    const std::vector<Json> got = rows(scratch / "layout", "grad_norm");
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CHECK(apart(got[i], want[i], "loss") < 2e-5);
      CHECK(apart(got[i], want[i], "grad_norm") < 5e-4);
    }
    fs::remove_all(scratch / "layout");
  }
  fs::remove_all(scratch / "one");
}

}  // namespace

TEST_CASE("optimizers: tensor-parallel, pipeline and expert ranks train as one rank") {
  Scratch scratch("mtrain-optimizers");
  const std::string llama = scratch.write("llama.yaml", optimizer_recipe(kLlama)),
                    moe = scratch.write("moe.yaml", optimizer_recipe(kMoe));
  for (const OptimizerCase& c : kOptimizers) {
    CAPTURE(c.name);
    check_as_one_rank(llama, scratch, c.words,
                      {{"dist.nproc=2"},
                       {"dist.nproc=2", "dist.tp=2", "dist.sp=true"},
                       {"dist.nproc=4", "dist.tp=4"},  // two ranks share a key/value head
                       {"dist.nproc=2", "dist.pp=2"},
                       {"dist.nproc=4", "dist.tp=2", "dist.zero=3"}});
    check_as_one_rank(moe, scratch, c.words,
                      {{"dist.nproc=2", "dist.ep=2"},
                       {"dist.nproc=4", "dist.ep=2", "dist.zero=2", "train.micro_batch_size=1"}});
  }
}

TEST_CASE("optimizers: all stages of dist.zero and an interrupted run end in the same bits") {
  Scratch scratch("mtrain-optimizers-zero");
  const std::string recipe = scratch.write("llama.yaml", optimizer_recipe(kLlama));
  for (const OptimizerCase& c : kOptimizers)
    for (const char* dtype : {"fp32", "bf16"}) {
      CAPTURE(c.name);
      CAPTURE(dtype);
      const Words base =
          with(c.words, {"dist.nproc=2", std::string("mixed_precision.dtype=") + dtype});
      train(recipe, scratch / "plain", base);
      const std::string expected = digest(scratch / "plain");
      REQUIRE(expected.size() == 65);
      for (const char* zero : {"dist.zero=1", "dist.zero=2", "dist.zero=3"}) {
        CAPTURE(zero);
        const fs::path folder = scratch / "shared";
        train(recipe, folder, with(base, {zero}));
        CHECK(digest(folder) == expected);
        forget_checkpoint(folder, 6);
        REQUIRE(digest(folder) != expected);
        train(recipe, folder, base);  // from the shards of two ranks to none
        CHECK(digest(folder) == expected);
        fs::remove_all(folder);
      }
      fs::remove_all(scratch / "plain");
    }
}

TEST_CASE("optimizers: a run takes the planned memory, with the state that its optimizer has") {
  Scratch scratch("mtrain-optimizers-memory");
  const std::string recipe = scratch.write("moe.yaml", optimizer_recipe(kMoe));
  double masters = 0;
  auto state_of = [&](const Words& words) {
    Outcome out =
        cli(with({"bench", recipe, "--steps", "2", "--warmup", "1", "--json", "--plain"}, words));
    REQUIRE_MESSAGE(out.status == 0, out.err);
    const Json seen = Json::parse(out.out);
    CHECK_MESSAGE(seen["planned_memory"]["uses"] == seen["tensor_memory"]["uses"], text(words));
    masters = seen["planned_memory"]["uses"]["parameters"].get<double>();  // in fp32
    return seen["planned_memory"]["uses"]["optimizer"].get<double>();
  };
  const double none = state_of({"optimizer={type: sgd, momentum: 0}"});
  CHECK(none < 0.01 * masters);
  CHECK(state_of({"optimizer={type: sgd}"}) - none == masters);
  CHECK(state_of({"optimizer={type: lion}"}) - none == masters);
  CHECK(state_of({"optimizer={type: adamw}"}) - none == 2 * masters);
  const double muon = state_of({"optimizer={type: muon}"});
  CHECK(muon > 1.01 * masters);
  CHECK(muon < 1.9 * masters);
  for (const char* zero : {"dist.zero=0", "dist.zero=1", "dist.zero=3"})
    for (const char* dtype : {"fp32", "bf16"})
      state_of({"optimizer={type: muon}", "dist.nproc=2", zero,
                std::string("mixed_precision.dtype=") + dtype});
}

TEST_CASE("optimizers: a run does not go on with another one, and its error says which it had") {
  Scratch scratch("mtrain-optimizers-resume");
  const std::string recipe = scratch.write("llama.yaml", optimizer_recipe(kLlama));
  train(recipe, scratch / "run", {"optimizer.type=lion", "train.steps=3"});
  for (const Words& words : {Words{"optimizer.type=sgd"}, Words{"optimizer.type=muon"}}) {
    Outcome out = run_training(recipe, scratch / "run", words);
    CHECK(out.status != 0);
    CHECK_MESSAGE(out.err.find("optimizer.type") != std::string::npos, out.err);
    CHECK_MESSAGE(out.err.find("lion") != std::string::npos, out.err);
  }
}
