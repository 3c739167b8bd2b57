// Training with products in FP8 and FP4, from the command line.
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

/// The quickstart's model, narrower, on made-up text whose entropy is known: 1.213 nats.
std::string recipe_text(int steps) {
  return "model: {type: llama, layers: 3, hidden_size: 128, heads: 4, kv_heads: 2, "
         "ffn_hidden_size: 384, seq_length: 64, "
         "tie_embeddings: true}\n"
         "dataset: {type: mock, vocab_size: 48}\n"
         "train: {steps: " +
         std::to_string(steps) +
         ", micro_batch_size: 4, global_batch_size: 8}\n"
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
    {"delayed",
     {"mixed_precision.fp8=hybrid", "mixed_precision.fp8_recipe=delayed",
      "mixed_precision.fp8_amax_history=16"}},
    {"blockwise", {"mixed_precision.fp8=e4m3", "mixed_precision.fp8_recipe=blockwise"}},
    {"mxfp8 with the head",
     {"mixed_precision.fp8=e4m3", "mixed_precision.fp8_recipe=mxfp8",
      "mixed_precision.fp8_output=true"}},
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
  REQUIRE(plain.valid < 1.6);  // it has been trained: 3.87 nats are what chance gives
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

TEST_CASE(
    "FP8 and FP4 training is the same bits on any number of threads, and continues to the bit") {
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

TEST_CASE("a bf16 run goes on in FP8, and its histories of largest values begin there") {
  Scratch scratch("mtrain-precision-switch");
  std::string recipe = scratch.write("small.yaml", recipe_text(12));
  for (const auto& [name, words] : kRecipes) {
    CAPTURE(std::string(name));
    train(recipe, scratch / "plain", {});
    forget_checkpoint(scratch / "plain", 12);
    const Outcome out = run_training(recipe, scratch / "plain", words);
    REQUIRE_MESSAGE(out.status == 0, out.err);
    CHECK(out.err.find("resuming with changed settings") != std::string::npos);
    CHECK((out.err.find("initialized instead") != std::string::npos) ==
          (std::string_view(name) == "delayed"));
    const auto steps = rows(scratch / "plain", "grad_norm");
    CHECK(steps.back().at("step") == 12);
    CHECK(steps.back().at("loss").get<double>() < steps.front().at("loss").get<double>());
    fs::remove_all(scratch / "plain");
  }
}

TEST_CASE("FP8 training does not depend on how data-parallel ranks share the parameters") {
  Scratch scratch("mtrain-precision-ranks");
  std::string recipe = scratch.write("small.yaml", recipe_text(12));
  for (const char* scales : {"tensorwise", "delayed"}) {
    CAPTURE(std::string(scales));
    Words words = {"mixed_precision.fp8=hybrid",
                   std::string("mixed_precision.fp8_recipe=") + scales, "dist.nproc=2",
                   "run.threads=1"};
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

namespace {

const std::vector<std::pair<const char*, Words>> kScalesOfTensors = {
    {"tensorwise", {"mixed_precision.fp8=e4m3"}},
    {"delayed",
     {"mixed_precision.fp8=hybrid", "mixed_precision.fp8_recipe=delayed",
      "mixed_precision.fp8_amax_history=3", "mixed_precision.fp8_margin=1"}},
};

/// Ways to lay out a model whose weights are gathered.
const std::vector<Words> kLayouts = {
    {"dist.nproc=2", "dist.zero=1", "train.weight_hash_interval=2"},
    {"dist.nproc=4", "dist.zero=2", "train.micro_batch_size=1"},
    {"dist.nproc=2", "dist.zero=3", "ddp.overlap_grad_reduce=true", "ddp.overlap_param_gather=true",
     "model.recompute=full"},
    {"dist.nproc=4", "dist.zero=1", "dist.tp=2", "dist.sp=true", "model.kv_heads=1",
     "ddp.overlap_grad_reduce=true", "ddp.overlap_param_gather=true"},
    {"dist.nproc=4", "dist.zero=3", "dist.tp=2", "model.kv_heads=1",
     "mixed_precision.first_bf16_layers=1"},
    {"dist.nproc=4", "dist.zero=1", "dist.pp=2", "model.layers=4"},
    {"dist.nproc=4", "dist.zero=3", "dist.hsdp=2", "dist.outer_zero=1", "train.micro_batch_size=1"},
};

const Words kParams = {"mixed_precision.fp8_params=true"},
            kShort = {"run.threads=1", "checkpoint.interval=3", "validation.interval=2",
                      "scheduler.warmup_steps=2"};

std::vector<double> validations(const fs::path& folder) {
  std::vector<double> out;
  for (const Json& row : rows(folder, "val_loss"))
    if (!row.at("val_loss").is_null()) out.push_back(row.at("val_loss").get<double>());
  return out;
}

void check_same_bits(const std::string& recipe, Scratch& scratch, const Words& words) {
  CAPTURE(text(words));
  train(recipe, scratch / "wide", words);
  train(recipe, scratch / "codes", with(words, kParams));
  std::string expected = digest(scratch / "wide");
  REQUIRE(expected.size() == 65);
  CHECK(digest(scratch / "codes") == expected);
  CHECK(curve(scratch / "codes").losses == curve(scratch / "wide").losses);
  REQUIRE(validations(scratch / "wide").size() == 3);
  CHECK(validations(scratch / "codes") == validations(scratch / "wide"));
  // And one continues the other.
  forget_checkpoint(scratch / "wide", 6);
  forget_checkpoint(scratch / "codes", 6);
  REQUIRE(digest(scratch / "codes") != expected);
  train(recipe, scratch / "wide", with(words, kParams));
  train(recipe, scratch / "codes", words);
  CHECK(digest(scratch / "wide") == expected);
  CHECK(digest(scratch / "codes") == expected);
  std::filesystem::remove_all(scratch / "wide");
  std::filesystem::remove_all(scratch / "codes");
}

}  // namespace

TEST_CASE(
    "weights gathered as FP8 train to the same bits in every layout, and continue runs that gather "
    "bf16") {
  Scratch scratch("mtrain-precision-params");
  std::string recipe = scratch.write("small.yaml", recipe_text(6));
  for (const auto& [name, scales] : kScalesOfTensors)
    for (const Words& layout : kLayouts)
      check_same_bits(recipe, scratch, with(with(scales, layout), kShort));
}

TEST_CASE("experts gathered as FP8 train to the same bits") {
  Scratch scratch("mtrain-precision-experts");
  std::string text = recipe_text(6);
  size_t at = text.find("type: llama"), end = text.find("tie_embeddings");
  text.insert(end, "moe: {experts: 4, top_k: 2, ffn_hidden_size: 64}, ");
  text.replace(at, 11, "type: moe");
  std::string recipe = scratch.write("small.yaml", text);
  for (const auto& [name, scales] : kScalesOfTensors)
    for (const Words& layout : std::vector<Words>{
             {"dist.nproc=2", "dist.zero=1"},
             {"dist.nproc=4", "dist.zero=3", "dist.ep=2", "train.micro_batch_size=2"},
             {"dist.nproc=4", "dist.zero=1", "dist.tp=2", "dist.ep=2", "dist.etp=1",
              "dist.sp=true"}})
      check_same_bits(recipe, scratch, with(with(scales, layout), kShort));
}

TEST_CASE("weights gathered as FP8 take half the memory, as planned") {
  Scratch scratch("mtrain-precision-memory");
  std::string recipe = scratch.write("small.yaml", recipe_text(6));
  for (const char* zero : {"dist.zero=1", "dist.zero=3"}) {
    CAPTURE(std::string(zero));
    auto bench = [&](const Words& words) {
      Words all = {"bench",
                   recipe,
                   "dist.nproc=2",
                   "mixed_precision.fp8=e4m3",
                   "scheduler.warmup_steps=2",
                   zero,
                   "--steps",
                   "2",
                   "--warmup",
                   "1",
                   "--json",
                   "--plain"};
      Outcome out = cli(with(all, words));
      REQUIRE_MESSAGE(out.status == 0, out.err);
      Json seen = Json::parse(out.out);
      CHECK(seen["planned_memory"]["uses"] == seen["tensor_memory"]["uses"]);
      return seen["tensor_memory"]["uses"];
    };
    Json wide = bench({}), codes = bench(kParams);
    double fell = wide.at("parameters").get<double>() - codes.at("parameters").get<double>();
    // Three blocks: queries, keys, values and what follows them; gate, up and down. Half of two
    // bytes each.
    double weights = 3.0 * (128 * (128 + 2 * 64 + 128) + 3 * 128 * 384);
    CHECK(fell >= (std::string(zero) == "dist.zero=1" ? 1 : 0.5) * weights - 4096);
    CHECK(fell <= weights);
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
           {{"mixed_precision.fp8=hybrid", "mixed_precision.dtype=fp32"},
            "require dtype bf16 or fp16"},
           {{"mixed_precision.fp8=hybrid", "mixed_precision.fp4=nvfp4"},
            "a matrix product is computed either in FP8 or in FP4"},
           {{"mixed_precision.fp8=hybrid", "model.ffn_hidden_size=390"},
            "390 is not a multiple of 16"},
           {{"mixed_precision.fp8=e4m3", "mixed_precision.fp8_recipe=mxfp8",
             "model.ffn_hidden_size=400"},
            "400 is not a multiple of 32"},
           {{"mixed_precision.fp8=hybrid", "mixed_precision.last_bf16_layers=3"},
            "which leaves none"},
           {{"mixed_precision.fp8=hybrid", "mixed_precision.fp8_output=true"},
            "needs fp8_recipe=mxfp8"},
           {{"mixed_precision.fp8=hybrid", "mixed_precision.fp8_attention=true"},
            "attention in FP8"},
           {{"mixed_precision.fp8=hybrid", "mixed_precision.fp8_params=true"},
            "and none are gathered"},
           {{"mixed_precision.fp8=e4m3", "mixed_precision.fp8_recipe=mxfp8",
             "mixed_precision.fp8_params=true", "dist.zero=1"},
            "weights are gathered in FP8 only with one scale per tensor"},
       }) {
    CAPTURE(std::string(c.says));
    Outcome out = run_training(recipe, scratch / "run", c.words);
    CHECK(out.status == 10);
    CHECK_MESSAGE(out.err.find(c.says) != std::string::npos, out.err);
  }
}
