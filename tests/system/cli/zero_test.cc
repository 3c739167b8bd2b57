// Ranks that share out state, gradients and parameters train as ranks that hold everything, and
// continue each other's checkpoints.
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

// One micro-batch per rank of two: then every stage adds gradients up in the same order.
std::string zero_recipe(const std::string& model) {
  return quant_recipe(
      model + ", layers: 3, hidden_size: 64, heads: 4, ffn_hidden_size: 136, seq_length: 48",
      "train: {steps: 12, micro_batch_size: 4, global_batch_size: 8}\n"
      "optimizer: {lr: 2e-3}\nscheduler: {warmup_steps: 4}\n"
      "checkpoint: {interval: 6}\nvalidation: {interval: 6, steps: 2}\n");
}

std::vector<double> losses(const fs::path& folder) {
  std::vector<double> out;
  for (const Json& row : rows(folder, "grad_norm")) out.push_back(row.at("loss").get<double>());
  return out;
}

const Words kSharings[] = {{"dist.zero=1"},
                           {"dist.zero=2"},
                           {"dist.zero=3"},
                           {"dist.zero=1", "ddp.overlap_grad_reduce=true",
                            "ddp.overlap_param_gather=true", "ddp.bucket_size=9000"},
                           {"dist.zero=3", "ddp.overlap_grad_reduce=true",
                            "ddp.overlap_param_gather=true", "model.recompute=full"}};

}  // namespace

TEST_CASE("dist.zero: every stage ends in the bits of none, also when it changes on resume") {
  Scratch scratch("mtrain-zero");
  for (const char* model : {"type: llama, kv_heads: 2", "type: gpt2, dropout: 0.1"})
    for (const char* dtype : {"fp32", "bf16"}) {
      std::string recipe = scratch.write("zero.yaml", zero_recipe(model));
      Words base = {"dist.nproc=2", std::string("mixed_precision.dtype=") + dtype};
      CAPTURE(model);
      CAPTURE(dtype);
      train(recipe, scratch / "plain", base);
      std::string expected = digest(scratch / "plain");
      REQUIRE(expected.size() == 65);
      int number = 0;
      for (const Words& sharing : kSharings) {
        CAPTURE(number);
        fs::path folder = scratch / "shared";
        train(recipe, folder, with(base, sharing));
        CHECK(digest(folder) == expected);
        CHECK(losses(folder) == losses(scratch / "plain"));
        forget_checkpoint(folder, 12);
        REQUIRE(digest(folder) != expected);
        train(recipe, folder,
              number % 2 ? base : with(base, kSharings[static_cast<size_t>(number + 1) % 5]));
        CHECK(digest(folder) == expected);
        fs::remove_all(folder);
        ++number;
      }
      fs::remove_all(scratch / "plain");
    }
}

TEST_CASE(
    "dist.zero: a checkpoint of one number of ranks continues on another, and hybrid sharding "
    "trains alike") {
  Scratch scratch("mtrain-zero-reshard");
  std::string recipe = scratch.write("zero.yaml", zero_recipe("type: llama, kv_heads: 2"));
  train(recipe, scratch / "plain", {"dist.nproc=2"});
  std::vector<double> expected = losses(scratch / "plain");
  const std::pair<Words, Words> kChanges[] = {
      {{"dist.nproc=4", "dist.zero=3", "train.micro_batch_size=2"},
       {"dist.nproc=2", "dist.zero=1"}},
      {{"dist.nproc=2", "dist.zero=2"},
       {"dist.nproc=4", "dist.zero=3", "dist.hsdp=2", "train.micro_batch_size=2"}},
      {{"dist.nproc=4", "dist.zero=3", "dist.hsdp=2", "dist.outer_zero=1",
        "train.micro_batch_size=1"},
       {"dist.nproc=1"}},
      {{"dist.nproc=1", "dist.zero=3"},
       {"dist.nproc=4", "dist.zero=2", "dist.tp=2", "dist.sp=true"}}};
  for (const auto& [before, after] : kChanges) {
    CAPTURE(before[1]);
    fs::path folder = scratch / "run";
    train(recipe, folder, before);
    forget_checkpoint(folder, 12);
    train(recipe, folder, after);
    std::vector<double> seen = losses(folder);
    REQUIRE(seen.size() == 12);
    for (size_t i = 0; i < 12; ++i) CHECK(std::fabs(seen[i] / expected[i] - 1) <= 2e-5);
    fs::remove_all(folder);
  }
}

TEST_CASE("dist.zero: the memory plan of a rank is what the rank takes, and falls") {
  Scratch scratch("mtrain-zero-memory");
  std::string recipe = scratch.write("zero.yaml", zero_recipe("type: llama, kv_heads: 2"));
  double before = 0;
  for (const char* zero : {"dist.zero=0", "dist.zero=1", "dist.zero=2", "dist.zero=3"}) {
    Outcome out = cli({"bench", recipe, "dist.nproc=4", "train.micro_batch_size=1",
                       "train.global_batch_size=4", zero, "model.hidden_size=128", "--steps", "2",
                       "--warmup", "1", "--json", "--plain"});
    REQUIRE_MESSAGE(out.status == 0, out.err);
    Json seen = Json::parse(out.out);
    CAPTURE(zero);
    CHECK(seen["planned_memory"]["uses"] == seen["tensor_memory"]["uses"]);
    // A run's initial values leave blocks that its steps use again; the plan has none.
    CHECK(seen["planned_memory"]["bytes"] >= seen["tensor_memory"]["bytes"]);
    double bytes = 0;
    for (const auto& use : seen["tensor_memory"]["uses"]) bytes += use.get<double>();
    if (before > 0) CHECK(bytes < before);
    before = bytes;
  }
}
