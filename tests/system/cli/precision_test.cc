// Training with products in FP8 and FP4, from the command line.
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

/// The quickstart's model, narrower, on made-up text whose entropy is known: 1.213 nats.
std::string recipe_text(int steps) {
  return "model: {type: llama, layers: 3, hidden_size: 128, heads: 4, kv_heads: 2, ffn_hidden_size: 384, seq_length: 64, "
         "tie_embeddings: true}\n"
         "dataset: {type: mock, vocab_size: 48}\n"
         "train: {steps: " + std::to_string(steps) + ", micro_batch_size: 4, global_batch_size: 8}\n"
         "optimizer: {type: adamw, lr: 3e-3, weight_decay: 0.01, beta2: 0.98}\n"
         "scheduler: {type: linear, warmup_steps: 10, min_lr: 1e-4}\n"
         "mixed_precision: {dtype: bf16}\n"
         "validation: {steps: 4}\n"
         "checkpoint: {interval: 6}\n"
         "logger: {tensorboard: false}\n";
}

const std::vector<std::pair<const char*, Words>> kRecipes = {
    {"tensorwise", {"mixed_precision.fp8=hybrid"}},
    {"tensorwise, e4m3 alone", {"mixed_precision.fp8=e4m3"}},
    {"delayed", {"mixed_precision.fp8=hybrid", "mixed_precision.fp8_recipe=delayed", "mixed_precision.fp8_amax_history=16"}},
    {"blockwise", {"mixed_precision.fp8=e4m3", "mixed_precision.fp8_recipe=blockwise"}},
    {"mxfp8 with the head", {"mixed_precision.fp8=e4m3", "mixed_precision.fp8_recipe=mxfp8", "mixed_precision.fp8_output=true"}},
    {"nvfp4", {"mixed_precision.fp4=nvfp4", "mixed_precision.last_bf16_layers=1"}},
};

struct Curve {
  std::vector<double> losses;
  double valid = NAN;
};

Curve curve(const fs::path& folder) {
  Curve out;
  for (const Json& row : rows(folder)) {
    if (!row.at("loss").is_null()) out.losses.push_back(row.at("loss").get<double>());
    if (!row.at("val_loss").is_null()) out.valid = row.at("val_loss").get<double>();
  }
  return out;
}

}  // namespace

TEST_CASE("every FP8 and FP4 recipe learns what bf16 learns, within 2 %") {
  Scratch scratch("mtrain-precision");
  std::string recipe = scratch.write("small.yaml", recipe_text(120));
  train(recipe, scratch / "bf16", {});
  Curve plain = curve(scratch / "bf16");
  REQUIRE(plain.losses.size() == 120);
  REQUIRE(plain.valid < 1.6);  // it has learnt: 3.87 nats are what chance gives
  for (const auto& [name, words] : kRecipes) {
    CAPTURE(std::string(name));
    train(recipe, scratch / "small", words);
    Curve small = curve(scratch / "small");
    MESSAGE(name << ": validation loss " << small.valid << ", bf16 " << plain.valid);
    CHECK(std::fabs(small.valid / plain.valid - 1) < 0.02);
    CHECK(small.losses != plain.losses);  // it is another computation
    fs::remove_all(scratch / "small");
  }
}

TEST_CASE("FP8 and FP4 training is the same bits on any number of threads, and continues to the bit") {
  Scratch scratch("mtrain-precision-bits");
  std::string recipe = scratch.write("small.yaml", recipe_text(12));
  for (const auto& [name, words] : kRecipes) {
    CAPTURE(std::string(name));
    train(recipe, scratch / "one", with(words, {"run.threads=1"}));
    train(recipe, scratch / "three", with(words, {"run.threads=3"}));
    std::string whole = digest(scratch / "one");
    REQUIRE(whole.size() == 65);
    CHECK(digest(scratch / "three") == whole);
    forget_checkpoint(scratch / "three", 12);
    train(recipe, scratch / "three", words);
    CHECK(digest(scratch / "three") == whole);
    fs::remove_all(scratch / "one");
    fs::remove_all(scratch / "three");
  }
}

TEST_CASE("FP8 training does not depend on how data-parallel ranks share the parameters") {
  Scratch scratch("mtrain-precision-ranks");
  std::string recipe = scratch.write("small.yaml", recipe_text(12));
  for (const char* scales : {"tensorwise", "delayed"}) {
    CAPTURE(std::string(scales));
    Words words = {"mixed_precision.fp8=hybrid", std::string("mixed_precision.fp8_recipe=") + scales, "dist.nproc=2", "run.threads=1"};
    train(recipe, scratch / "whole", words);
    std::vector<double> expected = curve(scratch / "whole").losses;
    REQUIRE(expected.size() == 12);
    for (const char* zero : {"1", "2", "3"}) {
      CAPTURE(std::string(zero));
      train(recipe, scratch / "shared", with(words, {std::string("dist.zero=") + zero}));
      CHECK(curve(scratch / "shared").losses == expected);
      fs::remove_all(scratch / "shared");
    }
    fs::remove_all(scratch / "whole");
  }
}

TEST_CASE("what does not fit FP8 is refused with the way out") {
  Scratch scratch("mtrain-precision-refused");
  std::string recipe = scratch.write("small.yaml", recipe_text(12));
  struct Case {
    Words words;
    const char* says;
  };
  for (const Case& c : std::vector<Case>{
           {{"mixed_precision.fp8=hybrid", "mixed_precision.dtype=fp32"}, "stand in a network of bf16 or fp16"},
           {{"mixed_precision.fp8=hybrid", "mixed_precision.fp4=nvfp4"}, "a product has one type"},
           {{"mixed_precision.fp8=hybrid", "model.ffn_hidden_size=390"}, "390 is no multiple of 16"},
           {{"mixed_precision.fp8=e4m3", "mixed_precision.fp8_recipe=mxfp8", "model.ffn_hidden_size=400"}, "400 is no multiple of 32"},
           {{"mixed_precision.fp8=hybrid", "mixed_precision.last_bf16_layers=3"}, "which leaves none"},
           {{"mixed_precision.fp8=hybrid", "mixed_precision.fp8_output=true"}, "needs fp8_recipe=mxfp8"},
           {{"mixed_precision.fp8=hybrid", "mixed_precision.fp8_attention=true"}, "attention in FP8"},
       }) {
    CAPTURE(std::string(c.says));
    Outcome out = run_training(recipe, scratch / "run", c.words);
    CHECK(out.status == 10);
    CHECK_MESSAGE(out.err.find(c.says) != std::string::npos, out.err);
  }
}
