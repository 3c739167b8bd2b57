// Ranks on a device whose memory the host cannot touch (tests/fixtures/plugins/walled_backend.cc):
// code that follows a tensor's pointer outside of a kernel ends the run. Every way of parallelism,
// and the CPU's bits.
#include <doctest/doctest.h>

#include <fstream>

#include "../process.h"
#include "roots.h"

using namespace mtrain::testing;

namespace {

using Words = std::vector<std::string>;
const std::string kPlugins = "MTRAIN_PLUGIN_PATH=" + (build_root() / "tests/plugins").string();

std::string recipe_text(const std::string& model) {
  return "model: {" + model +
         ", layers: 4, hidden_size: 64, heads: 4, seq_length: 64}\n"
         "dataset: mock\n"
         "train: {steps: 2, micro_batch_size: 1, global_batch_size: 2}\n"  // each access opens the
                                                                           // wall: slow
         "optimizer: {lr: 2e-3}\n"
         "scheduler: {warmup_steps: 0}\n"
         "validation: {interval: 2, steps: 1}\n"
         "checkpoint: {interval: 2}\n"
         "run: {threads: 1}\n"
         "logger: {tensorboard: false}\n"
         "profiling: {peak_tflops: 1}\n";  // a device's peak is measured with large products
}
constexpr const char* kLlama = "type: llama, kv_heads: 2, ffn_hidden_size: 128";
constexpr const char* kMoe =
    "type: moe, kv_heads: 2, ffn_hidden_size: 128, moe: {experts: 4, top_k: 2, ffn_hidden_size: "
    "64, "
    "shared_ffn_hidden_size: 64, router: {balancing: [aux_loss], aux_loss_coeff: [0.02], "
    "z_loss_coeff: 0.001}}";

struct Case {
  const char* model;
  Words words;
};

const Case kCases[] = {
    {kLlama, {"dist.nproc=1", "train.weight_hash_interval=2"}},
    {kLlama,
     {"dist.nproc=2", "train.weight_hash_interval=2", "ddp.overlap_grad_reduce=true",
      "ddp.bucket_size=20000", "train.global_batch_size=4"}},
    {kLlama, {"dist.nproc=2", "ddp.in_order=true"}},
    {kLlama,
     {"dist.nproc=2", "dist.zero=3", "ddp.overlap_grad_reduce=true",
      "ddp.overlap_param_gather=true"}},
    {kLlama,
     {"dist.nproc=4", "dist.tp=4", "dist.sp=true",
      "comm_overlap.tp=true"}},  // two ranks share a key/value head
    {kLlama, {"dist.nproc=4", "dist.tp=2", "dist.pp=2", "dist.vp=2", "dist.schedule=interleaved"}},
    {kLlama,
     {"dist.nproc=4", "dist.pp=2", "dist.vp=2", "dist.schedule=interleaved", "dist.zero=3",
      "dist.resident_stages=1", "ddp.overlap_grad_reduce=true", "ddp.overlap_param_gather=true",
      "train.global_batch_size=4"}},
    {kLlama, {"dist.nproc=2", "dist.cp=2", "mixed_precision.dtype=bf16"}},
    {kLlama, {"dist.nproc=2", "dist.cp=2", "dist.cp_comm=[all_gather]"}},
    {kLlama, {"dist.nproc=2", "dist.cp=2", "dist.cp_comm=[a2a]"}},
    {kLlama,
     {"dist.nproc=2", "dist.tp=2", "dist.sp=true", "mixed_precision.dtype=bf16",
      "mixed_precision.fp8=hybrid", "mixed_precision.fp8_recipe=tensorwise"}},
    {kLlama,
     {"dist.nproc=2", "dist.zero=1", "mixed_precision.dtype=bf16", "mixed_precision.fp8=hybrid",
      "mixed_precision.fp8_recipe=delayed", "mixed_precision.fp8_params=true"}},
    {kLlama, {"dist.nproc=1", "model.recompute=full"}},
    {kLlama, {"dist.nproc=2", "dist.zero=1", "checkpoint.async=true", "checkpoint.interval=1"}},
    {kMoe, {"dist.nproc=4", "dist.ep=2", "dist.tp=2", "dist.sp=true"}},
    {kMoe,
     {"dist.nproc=2", "dist.ep=2", "dist.zero=1", "comm_overlap.moe=true",
      "train.global_batch_size=4"}},
};

}  // namespace

TEST_CASE("every layout trains on a device's memory, with the CPU's bits") {
  Scratch scratch("mtrain-walled");
  int number = 0;
  for (const Case& c : kCases) {
    std::string name = std::to_string(number++),
                recipe = scratch.write(name + ".yaml", recipe_text(c.model));
    std::string command;
    for (const auto& word : c.words) command += word + " ";
    for (const char* backend : {"cpu", "walled"}) {
      Words words = {recipe, "-q", std::string("dist.backend=") + backend,
                     "run.dir=" + (scratch / (name + backend)).string()};
      words.insert(words.end(), c.words.begin(), c.words.end());
      Outcome out = cli(words, {kPlugins});
      CHECK_MESSAGE(out.status == 0, command << backend << "\n" << out.err);
    }
    CHECK_MESSAGE(digest(scratch / (name + "cpu")) == digest(scratch / (name + "walled")), command);
  }
}

TEST_CASE("an optimizer without kernels for a device is refused, and the help names one that has") {
  Scratch scratch("mtrain-walled-optimizer");
  const std::string recipe = scratch.write("llama.yaml", recipe_text(kLlama));
  for (const std::string optimizer : {"sgd", "lion", "muon"}) {
    Outcome out = cli({recipe, "-q", "dist.backend=walled", "optimizer.type=" + optimizer,
                       "run.dir=" + (scratch / "run").string()},
                      {kPlugins});
    CHECK(out.status == 10);
    for (const std::string& part :
         {"optimizer '" + optimizer + "' has no kernels for the backend 'walled'",
          std::string("optimizer.type=adamw")})
      CHECK_MESSAGE(out.err.find(part) != std::string::npos, out.err);
  }
}
