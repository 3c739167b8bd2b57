// comm_overlap changes time and never a bit: losses, gradient norms and weights, on and off.
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

// A sample of 64 tokens makes pieces of 32 rows on two ranks: products may be split there.
std::string overlap_recipe(const std::string& model) {
  return quant_recipe(
      model + ", layers: 4, hidden_size: 64, heads: 4, seq_length: 64",
      "train: {steps: 4, micro_batch_size: 1, global_batch_size: 8}\n"
      "optimizer: {lr: 2e-3}\nscheduler: {warmup_steps: 2}\nvalidation: {interval: 2, steps: 1}\n");
}

constexpr const char* kLlama = "type: llama, kv_heads: 2, ffn_hidden_size: 128";
constexpr const char* kGpt2 = "type: gpt2, dropout: 0.1, tie_embeddings: true";
constexpr const char* kMoe =
    "type: moe, kv_heads: 2, ffn_hidden_size: 128, moe: {experts: 4, top_k: 2, ffn_hidden_size: "
    "64, "
    "shared_ffn_hidden_size: 64, router: {balancing: [aux_loss], aux_loss_coeff: [0.02], "
    "z_loss_coeff: 0.001}}";

struct Case {
  const char* model;
  Words layout, overlap;
};

/// What a run left: figures of every step, and its weights.
struct Left {
  std::vector<std::string> figures;
  std::string weights;
};

Left left_by(const std::string& recipe, const fs::path& folder, const Words& words,
             const Words& launcher = {}) {
  train(recipe, folder, words, launcher);
  Left left;
  for (const Json& row : rows(folder, "loss"))
    left.figures.push_back(row.at("loss").dump() + " " +
                           (row.contains("grad_norm") ? row.at("grad_norm").dump() : ""));
  left.weights = digest(folder);
  fs::remove_all(folder);
  return left;
}

void check_same(const std::vector<Case>& cases, const Words& launcher = {}) {
  Scratch scratch("mtrain-overlap");
  for (const Case& c : cases) {
    std::string what = text(with(c.layout, c.overlap));
    CAPTURE(what);
    std::string recipe = scratch.write("r.yaml", overlap_recipe(c.model));
    Left off = left_by(recipe, scratch / "off", c.layout, launcher);
    Left on = left_by(recipe, scratch / "on", with(c.layout, c.overlap), launcher);
    CHECK(off.figures.size() >= 4);
    CHECK(on.figures == off.figures);
    CHECK(on.weights == off.weights);
  }
}

const Words kTp = {"dist.nproc=2", "dist.tp=2", "dist.sp=true"},
            kEp = {"dist.nproc=2", "dist.ep=2"};
const Words kPp = {"dist.nproc=2", "dist.pp=2"},
            kVp = {"dist.nproc=2", "dist.pp=2", "dist.vp=2", "dist.schedule=interleaved"};
const Words kBf16 = {"mixed_precision.dtype=bf16"};

}  // namespace

TEST_CASE("comm_overlap.tp: the same bits") {
  check_same({{kLlama, kTp, {"comm_overlap.tp=true"}},
              {kLlama, with(kTp, kBf16), {"comm_overlap.tp=true"}},
              {kGpt2, kTp, {"comm_overlap.tp=true"}},
              {kLlama, with(kTp, {"model.recompute=full"}), {"comm_overlap.tp=true"}},
              {kLlama,
               with(kTp, {"model.recompute=selective", "model.recompute_modules=[layernorm,mlp]"}),
               {"comm_overlap.tp=true"}},
              {kMoe, with(kTp, {"dist.ep=2"}), {"comm_overlap.tp=true"}},
              {kLlama,
               {"dist.nproc=4", "dist.tp=2", "dist.sp=true", "dist.pp=2", "dist.schedule=zb_h1",
                "dist.zero=1"},
               {"comm_overlap.tp=true"}},
              {kLlama,
               {"dist.nproc=4", "dist.tp=2", "dist.sp=true", "dist.zero=3",
                "ddp.overlap_grad_reduce=true"},
               {"comm_overlap.tp=true"}}});
}

TEST_CASE("comm_overlap.moe: forward overlapped with backward, the same bits") {
  check_same(
      {{kMoe, kEp, {"comm_overlap.moe=true"}},
       {kMoe, with(kEp, kBf16), {"comm_overlap.moe=true", "comm_overlap.dispatch_wgrad=true"}},
       {kMoe,
        with(kEp, {"dist.zero=2", "ddp.overlap_grad_reduce=true"}),
        {"comm_overlap.moe=true"}},
       {kMoe,
        with(kEp, {"dist.zero=3", "dist.resident_stages=1", "ddp.overlap_grad_reduce=true",
                   "ddp.overlap_param_gather=true"}),
        {"comm_overlap.moe=true"}},
       {kMoe,
        {"dist.nproc=4", "dist.ep=2", "dist.pp=2", "dist.vp=2", "dist.schedule=interleaved",
         "dist.zero=3", "dist.resident_stages=1"},
        {"comm_overlap.moe=true"}},
       {kMoe, with(kTp, {"dist.ep=2"}), {"comm_overlap.moe=true", "comm_overlap.tp=true"}},
       {kMoe,
        {"dist.nproc=4", "dist.ep=2", "dist.pp=2", "dist.vp=2", "dist.schedule=interleaved"},
        {"comm_overlap.moe=true", "comm_overlap.p2p=true", "comm_overlap.delay_wgrad=true"}}});
}

TEST_CASE("comm_overlap.dispatch_wgrad and model.moe.shared_overlap: the same bits") {
  check_same({{kMoe, kEp, {"comm_overlap.dispatch_wgrad=true"}},
              {kMoe, kEp, {"model.moe.shared_overlap=true"}},
              {kMoe,
               with(kEp, kBf16),
               {"comm_overlap.dispatch_wgrad=true", "model.moe.shared_overlap=true"}},
              {kMoe,
               {"dist.nproc=4", "dist.ep=2", "dist.etp=2"},
               {"comm_overlap.dispatch_wgrad=true", "model.moe.shared_overlap=true"}},
              {kMoe,
               with(kEp, {"model.recompute=full"}),
               {"comm_overlap.dispatch_wgrad=true", "model.moe.shared_overlap=true"}}});
}

TEST_CASE("comm_overlap.delay_wgrad, embedding_wgrad and batch_p2p: the same bits") {
  check_same(
      {{kLlama, kPp, {"comm_overlap.delay_wgrad=true"}},
       {kGpt2, kPp, {"comm_overlap.delay_wgrad=true", "comm_overlap.embedding_wgrad=true"}},
       {kLlama, kPp, {"comm_overlap.embedding_wgrad=true", "comm_overlap.embedding_wgrad_limit=2"}},
       {kLlama, with(kPp, kBf16), {"comm_overlap.embedding_wgrad=true"}},
       {kLlama,
        {"dist.nproc=4", "dist.pp=2", "dist.zero=1", "ddp.overlap_grad_reduce=true"},
        {"comm_overlap.embedding_wgrad=true", "comm_overlap.delay_wgrad=true"}},
       {kLlama, kVp, {"comm_overlap.batch_p2p=true"}},
       {kLlama, kVp, {"comm_overlap.p2p=true"}}});
}
