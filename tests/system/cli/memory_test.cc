// What is planned before a run is what the run then takes.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "../process.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

Json bench(const std::string& recipe, std::vector<std::string> words) {
  std::vector<std::string> arguments = {"bench",    recipe, "--steps", "2",
                                        "--warmup", "1",    "--json",  "--plain"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  Outcome out = cli(arguments);
  REQUIRE_MESSAGE(out.status == 0, out.err);
  return Json::parse(out.out);
}

}  // namespace

TEST_CASE("the planned memory is the memory taken, use by use, for every kind of step") {
  Scratch scratch("mtrain-memory-plan");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  const std::vector<std::vector<std::string>> kinds = {
      {},
      {"mixed_precision.dtype=bf16"},
      {"mixed_precision.dtype=fp16", "model.recompute=full"},
      {"train.micro_batch_size=1"},
      {"mixed_precision.dtype=bf16", "peft.type=lora"},
      {"model.type=gpt2", "~model.kv_heads", "model.seq_length=48", "model.dropout=0.1"},
      {"model.seq_length=100", "model.tie_embeddings=true", "mixed_precision.dtype=bf16"},
      {"dist.nproc=2", "train.micro_batch_size=1", "ddp.grads_dtype=bf16"},
      {"dist.nproc=2", "train.micro_batch_size=1", "ddp.grads_dtype=bf16",
       "ddp.overlap_grad_reduce=true", "dist.zero=2", "ddp.pad_buckets=true"},
      {"dist.nproc=2", "dist.tp=2", "model.recompute=full", "model.recompute_distribute=true"},
  };
  for (const auto& words : kinds) {
    std::string all;
    for (const auto& word : words) all += " " + word;
    INFO(all);
    Json seen = bench(recipe, words);
    CHECK(seen["planned_memory"] == seen["tensor_memory"]);
    CHECK(seen["tensor_memory"]["bytes"].get<int64_t>() > 100000);
    CHECK(seen["tensor_memory"]["uses"]["other"].get<int64_t>() >=
          3 * 256);  // ids, positions and targets
    // At the peak; messages of gradients in bf16 come after activations are freed.
    for (const std::string use : {"parameters", "gradients", "optimizer", "activations"})
      if (use != "activations" || all.find("grads_dtype") == std::string::npos)
        CHECK_MESSAGE(seen["tensor_memory"]["uses"][use].get<int64_t>() > 0, use);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__clang__)  // sanitizers keep memory
TEST_CASE("a process takes within 5 % of what is planned, besides what it takes for a tiny model") {
  Scratch scratch("mtrain-memory-process");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  for (const char* dtype : {"fp32", "bf16"}) {
    std::string precision = std::string("mixed_precision.dtype=") + dtype;
    Json tiny = bench(recipe, {precision});
    Json large =
        bench(recipe, {precision, "model.layers=6", "model.hidden_size=512", "model.heads=8",
                       "model.kv_heads=4", "model.ffn_hidden_size=1536", "model.seq_length=256"});
    double planned = large["planned_memory"]["bytes"].get<double>() -
                     tiny["planned_memory"]["bytes"].get<double>();
    double whole = large["memory_bytes"].get<double>(),
           taken = whole - tiny["memory_bytes"].get<double>();
    CHECK(planned > 300e6);
    CHECK_MESSAGE(std::fabs(taken - planned) < 0.05 * whole, dtype, ": ", taken, " for ", planned);
  }
}
#endif

TEST_CASE(
    "a run that cannot fit ends before its first step, with the need, its parts and the keys") {
  Scratch scratch("mtrain-memory-fit");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  std::vector<std::string> huge = {"model.hidden_size=32768", "model.heads=64", "model.kv_heads=64",
                                   "model.ffn_hidden_size=131072", "model.layers=8"};
  for (const char* command : {"train", "check"}) {
    std::vector<std::string> arguments = {command, recipe, "run.dir=" + (scratch / "run").string()};
    if (std::string(command) == "check") arguments.push_back("--memory");
    arguments.insert(arguments.end(), huge.begin(), huge.end());
    Outcome out = cli(arguments);
    CHECK(out.status == 10);
    for (const char* part : {"out of memory: a step needs ", "TiB", "optimizer", "are free",
                             "model.layers", "train.micro_batch_size"})
      CHECK_MESSAGE(out.err.find(part) != std::string::npos, part, " in ", out.err);
  }
  Outcome fits = cli({"check", recipe, "--memory"});
  CHECK(fits.status == 0);
  CHECK_MESSAGE(fits.out.find("  memory ") != std::string::npos, fits.out);
  std::vector<std::string> quiet = {"-q", "check", recipe, "--memory"};
  quiet.insert(quiet.end(), huge.begin(), huge.end());
  CHECK(cli(quiet).status == 10);
  CHECK(cli({"check", recipe, "--memory", "--gpu", "h100"}).status ==
        2);  // plans on this machine only
}
