// A whole run gives the same bits on any number of threads.
#include <doctest/doctest.h>

#include "../process.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

/// Large enough that the packed products, the attention tiles and the row blocks are split into
/// several tasks.
std::string wide_recipe(const std::string& model) {
  return "model: {" + model +
         ", layers: 2, hidden_size: 128, heads: 4, ffn_hidden_size: 256, seq_length: 96}\n"
         "dataset: mock\n"
         "train: {steps: 3, micro_batch_size: 3, global_batch_size: 6}\n"
         "optimizer: {lr: 2e-3}\n"
         "scheduler: {warmup_steps: 1}\n"
         "validation: {steps: 1}\n"
         "logger: {tensorboard: false}\n";
}

}  // namespace

TEST_CASE("training on 1, 2 and 4 threads ends in the same bits") {
  Scratch scratch("mtrain-threads");
  for (const char* model : {"type: llama, kv_heads: 2", "type: gpt2"}) {
    std::string recipe = scratch.write("wide.yaml", wide_recipe(model));
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      std::string expected;
      for (const char* threads : {"1", "2", "4"}) {
        CAPTURE(model);
        CAPTURE(dtype);
        CAPTURE(threads);
        fs::path folder = scratch / "run";
        Outcome out =
            cli({recipe, "-q", "run.dir=" + folder.string(), std::string("run.threads=") + threads,
                 std::string("mixed_precision.dtype=") + dtype});
        REQUIRE_MESSAGE(out.status == 0, out.err);
        std::string digest_now = digest(folder);
        REQUIRE(digest_now.size() == 65);
        if (expected.empty()) expected = digest_now;
        CHECK(digest_now == expected);
        fs::remove_all(folder);
      }
    }
  }
}
