// Ranks that share out each sequence train as one rank does: every way of sharing keys and values,
// whole and packed sequences, with tensor, sequence and data parallelism.
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

std::string context_recipe(const std::string& model, const std::string& dataset) {
  return quant_recipe(
      model + ", layers: 2, hidden_size: 64, heads: 4, ffn_hidden_size: 128, seq_length: 64",
      "tokenizer: byte\n"
      "train: {steps: 10, micro_batch_size: 2, global_batch_size: 4}\n"
      "optimizer: {lr: 2e-3}\nscheduler: {warmup_steps: 4}\nvalidation: {interval: 5, steps: 2}\n",
      dataset);
}

/// Text of many short documents and some long ones, prepared.
std::string packed_data(const Scratch& scratch) {
  std::ofstream out(scratch / "text.jsonl");
  for (int i = 0; i < 400; ++i) {
    std::string text;
    for (int j = 0; j < (i % 7 == 0 ? 60 : 2 + i % 11); ++j)
      text += static_cast<char>('a' + (i * 5 + j * j) % 26);
    out << R"({"text":")" << text << "\"}\n";
  }
  out.close();
  Outcome done =
      cli({"-q", "data", "prepare", "--input", (scratch / "text.jsonl").string(), "--output",
           (scratch / "packed").string(), "--tokenizer", "byte", "--append-eod"});
  REQUIRE_MESSAGE(done.status == 0, done.err);
  return "{type: gpt, path: " + (scratch / "packed").string() +
         ", split: '90,10,0', reset_position_ids: true, reset_attention_mask: true, eod_mask_loss: "
         "true}";
}

std::vector<Json> metrics(const std::string& recipe, const fs::path& folder, const Words& words) {
  train(recipe, folder, words);
  std::vector<Json> found = rows(folder);
  fs::remove_all(folder);
  return found;
}

void check_layouts(const Scratch& scratch, const std::string& recipe,
                   const std::vector<Words>& layouts) {
  std::vector<Json> one = metrics(recipe, scratch / "run", {});
  REQUIRE(one.size() >= 10);
  for (const Words& layout : layouts) {
    std::string now = text(layout);
    CAPTURE(now);
    std::vector<Json> seen = metrics(recipe, scratch / "run", layout);
    REQUIRE(seen.size() == one.size());
    CHECK(apart(seen[0], one[0], "loss") <= 1e-6);
    CHECK(apart(seen[0], one[0], "grad_norm") <= 1e-5);
    for (size_t i = 0; i < seen.size(); ++i) {
      CHECK(apart(seen[i], one[i], "loss") <= 5e-5);
      CHECK(apart(seen[i], one[i], "val_loss") <= 5e-5);
    }
  }
}

}  // namespace

TEST_CASE("context-parallel ranks lose what one rank loses") {
  Scratch scratch("mtrain-cp");
  std::string llama =
      scratch.write("llama.yaml", context_recipe("type: llama, kv_heads: 2", "mock"));
  check_layouts(
      scratch, llama,
      {{"dist.nproc=2", "dist.cp=2"},
       {"dist.nproc=2", "dist.cp=2", "dist.cp_comm=[all_gather]"},
       {"dist.nproc=2", "dist.cp=2", "dist.cp_comm=[a2a]"},
       {"dist.nproc=2", "dist.cp=2", "dist.cp_comm=[p2p,a2a]", "model.recompute=full"},
       {"dist.nproc=2", "dist.cp=2", "model.recompute=selective",
        "model.recompute_modules=[core_attn,layernorm]"},
       {"dist.nproc=4", "dist.cp=4"},
       {"dist.nproc=4", "dist.cp=4", "dist.cp_comm=[a2a]"},
       {"dist.nproc=4", "dist.cp=4", "dist.cp_comm=['a2a+p2p']", "dist.cp_hierarchy=[2,2]"},
       {"dist.nproc=4", "dist.cp=2", "train.micro_batch_size=1"},
       {"dist.nproc=4", "dist.cp=2", "dist.tp=2"},
       {"dist.nproc=4", "dist.cp=2", "dist.tp=2", "dist.sp=true", "dist.cp_comm=[all_gather]"},
       {"dist.nproc=8", "dist.cp=2", "dist.tp=2", "dist.sp=true", "dist.cp_comm=[a2a]"}});
}

TEST_CASE("context- and sequence-parallel ranks drop what one rank drops") {
  Scratch scratch("mtrain-cp-drop");
  std::string gpt2 = scratch.write("gpt2.yaml", context_recipe("type: gpt2, dropout: 0.1", "mock"));
  check_layouts(
      scratch, gpt2,
      {{"dist.nproc=2", "dist.cp=2"},
       {"dist.nproc=2", "dist.tp=2", "dist.sp=true"},
       {"dist.nproc=4", "dist.cp=2", "dist.tp=2", "dist.sp=true", "model.recompute=full"}});
}

TEST_CASE("attention with windows, sinks, capped scores and dropout is the same in every layout") {
  Scratch scratch("mtrain-cp-varied");
  std::string varied =
      ", attention: {window: 10, window_blocks: [1, 0], softmax: learnable, softmax_scale: 0.2, "
      "logit_cap: 2.5, dropout: 0.1}";
  std::string llama =
      scratch.write("llama.yaml", context_recipe("type: llama, kv_heads: 2" + varied, "mock"));
  check_layouts(
      scratch, llama,
      {{"dist.nproc=2", "dist.cp=2"},
       {"dist.nproc=2", "dist.cp=2", "dist.cp_comm=[all_gather]", "model.recompute=full"},
       {"dist.nproc=2", "dist.cp=2", "dist.cp_comm=[a2a]"},
       {"dist.nproc=4", "dist.cp=4", "dist.cp_comm=['a2a+p2p']", "dist.cp_hierarchy=[2,2]"},
       {"dist.nproc=4", "dist.tp=4", "dist.sp=true"},  // ranks share key/value heads
       {"dist.nproc=4", "dist.tp=2", "dist.cp=2", "model.recompute=selective",
        "model.recompute_modules=[core_attn]"},
       {"dist.nproc=2", "dist.pp=2", "train.micro_batch_size=1"},
       {"dist.nproc=2", "dist.zero=3"}});
  std::string packed = scratch.write(
      "packed.yaml", context_recipe("type: llama, kv_heads: 2" + varied, packed_data(scratch)));
  check_layouts(
      scratch, packed,
      {{"dist.nproc=2", "dist.cp=2"},
       {"dist.nproc=4", "dist.cp=4", "dist.dynamic_cp=true", "dist.max_tokens_per_cp_rank=16"}});
}

TEST_CASE("packed sequences are shared out one by one, and dynamically") {
  Scratch scratch("mtrain-cp-packed");
  std::string packed = scratch.write(
      "packed.yaml", context_recipe("type: llama, kv_heads: 2", packed_data(scratch)));
  check_layouts(
      scratch, packed,
      {{"dist.nproc=2", "dist.cp=2"},
       {"dist.nproc=4", "dist.cp=4", "dist.cp_comm=[all_gather]"},
       {"dist.nproc=4", "dist.cp=4", "dist.cp_comm=[a2a]"},
       {"dist.nproc=2", "dist.cp=2", "dist.dynamic_cp=true", "dist.max_tokens_per_cp_rank=32"},
       {"dist.nproc=4", "dist.cp=4", "dist.dynamic_cp=true", "dist.max_tokens_per_cp_rank=16"},
       {"dist.nproc=4", "dist.cp=2", "dist.tp=2", "dist.dynamic_cp=true",
        "dist.max_tokens_per_cp_rank=32"}});
}

TEST_CASE("the memory plan of a context-parallel rank is what the rank takes") {
  Scratch scratch("mtrain-cp-memory");
  std::string recipe = scratch.write("cp.yaml", context_recipe("type: llama, kv_heads: 2", "mock"));
  const Words kVaried = {"dist.nproc=2", "dist.cp=2", "model.attention.window=10",
                         "model.attention.softmax=learnable", "model.attention.dropout=0.1"};
  for (const Words& layout :
       {Words{"dist.nproc=2", "dist.cp=2"},
        kVaried,
        {"dist.nproc=2", "dist.cp=2", "dist.cp_comm=[a2a]"},
        {"dist.nproc=4", "dist.cp=4", "dist.cp_comm=['a2a+p2p']", "dist.cp_hierarchy=[2,2]"}}) {
    Outcome out =
        cli(with({"bench", recipe, "--steps", "2", "--warmup", "1", "--json", "--plain"}, layout));
    REQUIRE_MESSAGE(out.status == 0, out.err);
    Json seen = Json::parse(out.out);
    CAPTURE(layout.back());
    CHECK(seen["planned_memory"] == seen["tensor_memory"]);
  }
}
