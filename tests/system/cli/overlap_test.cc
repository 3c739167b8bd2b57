// comm_overlap changes time and never a bit: losses, gradient norms and weights, on and off.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "../process.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

using Words = std::vector<std::string>;

// A sample of 64 tokens makes pieces of 32 rows on two ranks: products may be cut there.
std::string recipe_text(const std::string& model) {
  return "model: {" + model +
         ", layers: 4, hidden_size: 64, heads: 4, seq_length: 64}\n"
         "dataset: mock\n"
         "train: {steps: 4, micro_batch_size: 1, global_batch_size: 8}\n"
         "optimizer: {lr: 2e-3}\n"
         "scheduler: {warmup_steps: 2}\n"
         "validation: {interval: 2, steps: 1}\n"
         "run: {threads: 1}\n"
         "logger: {tensorboard: false}\n";
}

constexpr const char* kLlama = "type: llama, kv_heads: 2, ffn_hidden_size: 128";
constexpr const char* kGpt2 = "type: gpt2, dropout: 0.1, tie_embeddings: true";
constexpr const char* kMoe =
    "type: moe, kv_heads: 2, ffn_hidden_size: 128, moe: {experts: 4, top_k: 2, ffn_hidden_size: 64, "
    "shared_ffn_hidden_size: 64, router: {balancing: [aux_loss], aux_loss_coeff: [0.02], z_loss_coeff: 0.001}}";

struct Case {
  const char* model;
  Words layout, overlap;
};

Words joined(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string text(const Words& words) {
  std::string out;
  for (const auto& word : words) out += word + " ";
  return out;
}

/// What a run left: figures of every step, and its weights.
struct Left {
  std::vector<std::string> figures;
  std::string weights;
};

Left train(const std::string& recipe, const fs::path& folder, const Words& words, const Words& launcher = {}) {
  Outcome out = cli(joined(joined(launcher, {recipe, "-q", "run.dir=" + folder.string()}), words));
  std::string told = text(words) + out.err;
  REQUIRE_MESSAGE(out.status == 0, told);
  Left left;
  std::ifstream in(folder / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    Json row = Json::parse(line);
    if (row.contains("loss"))
      left.figures.push_back(row.at("loss").dump() + " " + (row.contains("grad_norm") ? row.at("grad_norm").dump() : ""));
  }
  left.weights = digest(folder);
  fs::remove_all(folder);
  return left;
}

void check_same(const std::vector<Case>& cases, const Words& launcher = {}) {
  Scratch scratch("mtrain-overlap");
  for (const Case& c : cases) {
    std::string what = text(joined(c.layout, c.overlap));
    CAPTURE(what);
    std::string recipe = scratch.write("r.yaml", recipe_text(c.model));
    Left off = train(recipe, scratch / "off", c.layout, launcher);
    Left on = train(recipe, scratch / "on", joined(c.layout, c.overlap), launcher);
    CHECK(off.figures.size() >= 4);
    CHECK(on.figures == off.figures);
    CHECK(on.weights == off.weights);
  }
}

const Words kTp = {"dist.nproc=2", "dist.tp=2", "dist.sp=true"}, kEp = {"dist.nproc=2", "dist.ep=2"};
const Words kPp = {"dist.nproc=2", "dist.pp=2"}, kVp = {"dist.nproc=2", "dist.pp=2", "dist.vp=2", "dist.schedule=interleaved"};
const Words kBf16 = {"mixed_precision.dtype=bf16"};

}  // namespace

TEST_CASE("comm_overlap.tp: the same bits") {
  check_same({{kLlama, kTp, {"comm_overlap.tp=true"}},
              {kLlama, joined(kTp, kBf16), {"comm_overlap.tp=true"}},
              {kGpt2, kTp, {"comm_overlap.tp=true"}},
              {kLlama, joined(kTp, {"model.recompute=full"}), {"comm_overlap.tp=true"}},
              {kLlama, joined(kTp, {"model.recompute=selective", "model.recompute_modules=[layernorm,mlp]"}), {"comm_overlap.tp=true"}},
              {kMoe, joined(kTp, {"dist.ep=2"}), {"comm_overlap.tp=true"}},
              {kLlama,
               {"dist.nproc=4", "dist.tp=2", "dist.sp=true", "dist.pp=2", "dist.schedule=zb_h1", "dist.zero=1"},
               {"comm_overlap.tp=true"}},
              {kLlama,
               {"dist.nproc=4", "dist.tp=2", "dist.sp=true", "dist.zero=3", "ddp.overlap_grad_reduce=true"},
               {"comm_overlap.tp=true"}}});
}

TEST_CASE("comm_overlap.moe: forward beside backward, the same bits") {
  check_same({{kMoe, kEp, {"comm_overlap.moe=true"}},
              {kMoe, joined(kEp, kBf16), {"comm_overlap.moe=true", "comm_overlap.dispatch_wgrad=true"}},
              {kMoe, joined(kEp, {"dist.zero=2", "ddp.overlap_grad_reduce=true"}), {"comm_overlap.moe=true"}},
              {kMoe, joined(kTp, {"dist.ep=2"}), {"comm_overlap.moe=true", "comm_overlap.tp=true"}},
              {kMoe,
               {"dist.nproc=4", "dist.ep=2", "dist.pp=2", "dist.vp=2", "dist.schedule=interleaved"},
               {"comm_overlap.moe=true", "comm_overlap.p2p=true", "comm_overlap.delay_wgrad=true"}}});
}

TEST_CASE("comm_overlap.dispatch_wgrad and model.moe.shared_overlap: the same bits") {
  check_same({{kMoe, kEp, {"comm_overlap.dispatch_wgrad=true"}},
              {kMoe, kEp, {"model.moe.shared_overlap=true"}},
              {kMoe, joined(kEp, kBf16), {"comm_overlap.dispatch_wgrad=true", "model.moe.shared_overlap=true"}},
              {kMoe, {"dist.nproc=4", "dist.ep=2", "dist.etp=2"}, {"comm_overlap.dispatch_wgrad=true", "model.moe.shared_overlap=true"}},
              {kMoe,
               joined(kEp, {"model.recompute=full"}),
               {"comm_overlap.dispatch_wgrad=true", "model.moe.shared_overlap=true"}}});
}

TEST_CASE("comm_overlap.delay_wgrad, embedding_wgrad and batch_p2p: the same bits") {
  check_same({{kLlama, kPp, {"comm_overlap.delay_wgrad=true"}},
              {kGpt2, kPp, {"comm_overlap.delay_wgrad=true", "comm_overlap.embedding_wgrad=true"}},
              {kLlama, kPp, {"comm_overlap.embedding_wgrad=true", "comm_overlap.embedding_wgrad_limit=2"}},
              {kLlama, joined(kPp, kBf16), {"comm_overlap.embedding_wgrad=true"}},
              {kLlama,
               {"dist.nproc=4", "dist.pp=2", "dist.zero=1", "ddp.overlap_grad_reduce=true"},
               {"comm_overlap.embedding_wgrad=true", "comm_overlap.delay_wgrad=true"}},
              {kLlama, kVp, {"comm_overlap.batch_p2p=true"}},
              {kLlama, kVp, {"comm_overlap.p2p=true"}}});
}
