// Ranks that share out the global batch train as one rank does.
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

std::string recipe_text(const std::string& model) {
  return quant_recipe(
      model + ", layers: 2, hidden_size: 64, heads: 4, ffn_hidden_size: 128, seq_length: 48",
      "train: {steps: 20, micro_batch_size: 2, global_batch_size: 8}\n"
      "optimizer: {lr: 2e-3}\nscheduler: {warmup_steps: 4}\n"
      "checkpoint: {interval: 10}\nvalidation: {interval: 10, steps: 2}\n");
}

std::string ranks(int n) { return "dist.nproc=" + std::to_string(n); }

}  // namespace

TEST_CASE("2 and 4 ranks lose what one rank loses, within rounding") {
  Scratch scratch("mtrain-dp-parity");
  for (const char* model : {"type: llama, kv_heads: 2", "type: gpt2, dropout: 0.1"}) {
    std::string recipe = scratch.write("dp.yaml", recipe_text(model));
    for (const char* dtype : {"fp32", "bf16"}) {
      std::string precision = std::string("mixed_precision.dtype=") + dtype;
      std::vector<Json> one;
      for (int n : {1, 2, 4}) {
        CAPTURE(model);
        CAPTURE(dtype);
        CAPTURE(n);
        fs::path folder = scratch / "run";
        train(recipe, folder, {precision, ranks(n)});
        std::vector<Json> seen = rows(folder, "grad_norm");
        REQUIRE(seen.size() == 20);
        if (one.empty()) one = seen;
        CHECK(apart(seen[0], one[0], "loss") ==
              0);  // the same forward passes, added in the same order
        CHECK(apart(seen[0], one[0], "grad_norm") <=
              2e-6);  // sums of the same four gradients in another order
        for (size_t i = 0; i < seen.size(); ++i)
          CHECK(apart(seen[i], one[i], "loss") <= (precision.ends_with("fp32") ? 2e-5 : 2e-3));
        fs::remove_all(folder);
      }
    }
  }
}

TEST_CASE(
    "with ddp.in_order 1, 2 and 4 ranks end in the same bits, also when the number changes on "
    "resume") {
  Scratch scratch("mtrain-dp-order");
  std::string recipe = scratch.write("dp.yaml", recipe_text("type: llama, kv_heads: 2"));
  for (const char* dtype : {"fp32", "bf16", "fp16"}) {
    Words words = {std::string("mixed_precision.dtype=") + dtype, "ddp.in_order=true"};
    auto run = [&](const fs::path& folder, const Words& more) {
      train(recipe, folder, with(more, words));
    };
    CAPTURE(dtype);
    run(scratch / "1", {ranks(1)});
    std::string expected = digest(scratch / "1");
    REQUIRE(expected.size() == 65);
    for (int n : {2, 4}) {
      fs::path folder = scratch / std::to_string(n);
      run(folder, {ranks(n), "run.threads=2"});
      CHECK(digest(folder) == expected);
      CHECK(rows(folder, "grad_norm").back()["loss"] ==
            rows(scratch / "1", "grad_norm").back()["loss"]);
    }
    run(scratch / "resumed", {ranks(4)});
    forget_checkpoint(scratch / "resumed", 20);
    REQUIRE(digest(scratch / "resumed") != expected);
    run(scratch / "resumed", {ranks(2)});
    CHECK(digest(scratch / "resumed") == expected);
    for (const char* name : {"1", "2", "4", "resumed"}) fs::remove_all(scratch / name);
  }
}

TEST_CASE("ranks that do not fit are refused before anything starts") {
  Scratch scratch("mtrain-dp-refused");
  std::string recipe = scratch.write("dp.yaml", recipe_text("type: llama, kv_heads: 2"));
  Outcome uneven = run_training(recipe, scratch / "run", {ranks(3)});
  CHECK(uneven.status != 0);
  CHECK(uneven.err.find("3 data-parallel ranks") != std::string::npos);
  CHECK_FALSE(fs::exists(scratch / "run"));
  Outcome none = run_training(recipe, scratch / "run", {ranks(0)});
  CHECK(none.err.find("dist.nproc") != std::string::npos);
  Outcome whole =
      run_training(recipe, scratch / "run",
                   {"dist.comm=thread", ranks(4), "train.steps=1", "scheduler.warmup_steps=0"});
  CHECK_MESSAGE(whole.status == 0, whole.err);
}

TEST_CASE("the memory plan of a rank is what the rank takes") {
  Scratch scratch("mtrain-dp-memory");
  std::string recipe = scratch.write("dp.yaml", recipe_text("type: llama, kv_heads: 2"));
  for (const char* order : {"ddp.in_order=false", "ddp.in_order=true"}) {
    Outcome out = cli(
        {"bench", recipe, ranks(2), order, "--steps", "2", "--warmup", "1", "--json", "--plain"});
    REQUIRE_MESSAGE(out.status == 0, out.err);
    Json seen = Json::parse(out.out);
    CAPTURE(order);
    CHECK(seen["losses"].size() == 2);
    CHECK(seen["planned_memory"] == seen["tensor_memory"]);
  }
}

TEST_CASE(
    "a bit that flips in one replica is found at the next check, with its rank and parameter") {
  Scratch scratch("mtrain-dp-flip");
  std::string recipe = scratch.write("dp.yaml", recipe_text("type: llama, kv_heads: 2"));
  for (const char* zero : {"dist.zero=0", "dist.zero=1"}) {
    CAPTURE(zero);
    std::vector<std::string> words = {recipe,
                                      "-q",
                                      zero,
                                      ranks(4),
                                      "train.weight_hash_interval=5",
                                      "run.dir=" + (scratch / "run").string()};
    Outcome sound = cli(words);
    CHECK_MESSAGE(sound.status == 0, sound.err);
    fs::remove_all(scratch / "run");
    words.emplace_back("train.steps=5");  // so that no gather of a sharded update has repaired it
    words.emplace_back("scheduler.warmup_steps=1");
    Outcome flipped =
        cli(words, {"MTRAIN_FAULT=train.flip:18:nan"});  // one of four ranks, in its fifth step
    INFO(flipped.err);
    CHECK(flipped.status == 14);
    CHECK(flipped.err.find("replicas differ after step 5: rank ") != std::string::npos);
    CHECK(flipped.err.find("than the other 3 replicas") != std::string::npos);
    fs::remove_all(scratch / "run");
  }
}
