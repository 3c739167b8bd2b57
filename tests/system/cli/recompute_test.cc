// What is kept for backward changes memory and time, and no bit of the result.
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

std::string recompute_recipe(const std::string& model) {
  return quant_recipe(
      model + ", layers: 4, hidden_size: 64, heads: 4, ffn_hidden_size: 192, seq_length: 64",
      "train: {steps: 3, micro_batch_size: 4, global_batch_size: 8}\n"
      "scheduler: {warmup_steps: 0}\ncheckpoint: {interval: 0}\n");
}

struct Seen {
  std::vector<double> numbers;  // losses and norms
  double memory = 0;
};

Seen seen_of(const std::string& recipe, const fs::path& folder, const std::string& words) {
  fs::remove_all(folder);
  std::istringstream in(words);
  train(recipe, folder, {std::istream_iterator<std::string>(in), {}});
  Seen seen;
  for (const Json& row : rows(folder, "grad_norm")) {
    seen.numbers.push_back(row.at("loss"));
    seen.numbers.push_back(row.at("grad_norm"));
    seen.memory = row.at("memory_bytes");
  }
  REQUIRE(seen.numbers.size() == 6);
  return seen;
}

}  // namespace

TEST_CASE("recomputation and offloading: the same bits with less memory") {
  Scratch scratch("mtrain-recompute");
  for (const char* model : {"type: llama, kv_heads: 2", "type: gpt2, dropout: 0.1"})
    for (const char* dtype : {"fp32", "bf16"})
      for (const char* layout : {"", "dist.nproc=2 dist.tp=2"}) {
        std::string recipe = scratch.write("r.yaml", recompute_recipe(model));
        std::string base = std::string("mixed_precision.dtype=") + dtype + " " + layout;
        Seen kept = seen_of(recipe, scratch / "run", base);
        for (const char* how :
             {"model.recompute=full", "model.recompute=full model.recompute_layers=2",
              "model.recompute=full model.recompute_method=block model.recompute_layers=3",
              "model.recompute=selective model.recompute_modules=[core_attn]",
              "model.recompute=selective model.recompute_modules=[layernorm]",
              "model.recompute=selective model.recompute_modules=[mlp]",
              "model.recompute=selective model.recompute_modules=[core_attn,layernorm,mlp]",
              "offload.layers=3"}) {
          CAPTURE(model);
          CAPTURE(base);
          CAPTURE(how);
          Seen seen = seen_of(recipe, scratch / "run", base + " " + how);
          CHECK(seen.numbers == kept.numbers);
          CHECK(seen.memory < kept.memory);
        }
      }
}

TEST_CASE("kept inputs that tensor-parallel ranks share: the same bits, and a part of the memory") {
  Scratch scratch("mtrain-recompute-distribute");
  for (const char* model :
       {"type: llama, kv_heads: 2", "type: gpt2, dropout: 0.1", "type: bert, dropout: 0.1"})
    for (const char* layout : {"dist.nproc=2 dist.tp=2", "dist.nproc=4 dist.tp=4 run.threads=1",
                               "dist.nproc=4 dist.tp=2 dist.pp=2 run.threads=1",
                               "dist.nproc=4 dist.tp=2 dist.zero=3 run.threads=1"})
      for (const char* groups : {"model.recompute_layers=1", "model.recompute_layers=2"}) {
        if (std::string(layout).find("tp=4") != std::string::npos &&
            std::string(model).find("kv_heads") != std::string::npos)
          continue;
        std::string recipe = scratch.write("r.yaml", recompute_recipe(model));
        std::string base =
            std::string("mixed_precision.dtype=bf16 model.recompute=full ") + layout + " " + groups;
        CAPTURE(model);
        CAPTURE(base);
        Seen whole = seen_of(recipe, scratch / "run", base),
             shared = seen_of(recipe, scratch / "run", base + " model.recompute_distribute=true");
        CHECK(shared.numbers == whole.numbers);
        // With pipeline stages, the peak also depends on how many messages are in flight.
        if (std::string(layout).find("pp=") == std::string::npos)
          CHECK(shared.memory < whole.memory);
      }
}

TEST_CASE(
    "parts of a layer of experts that are computed again: the same bits with no more memory") {
  Scratch scratch("mtrain-recompute-experts");
  const std::string recipe = scratch.write(
      "r.yaml",
      recompute_recipe(
          "type: moe, moe: {experts: 4, top_k: 2, ffn_hidden_size: 96, shared_ffn_hidden_size: 64, "
          "router: {balancing: [aux_loss], aux_loss_coeff: [0.01]}}"));
  for (const char* layout : {"", "dist.nproc=2 dist.ep=2"}) {
    Seen kept = seen_of(recipe, scratch / "run", layout);
    for (const char* part : {"moe", "moe_act", "shared_experts"}) {
      CAPTURE(std::string(part));
      CAPTURE(std::string(layout));
      Seen seen = seen_of(recipe, scratch / "run",
                          std::string(layout) +
                              " model.recompute=selective model.recompute_modules=[" + part + "]");
      CHECK(seen.numbers == kept.numbers);
      CHECK(seen.memory <= kept.memory);
    }
  }
}
