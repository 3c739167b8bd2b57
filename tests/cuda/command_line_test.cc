// What a user sees of the CUDA backend, on a machine with and without a GPU.
#include <doctest/doctest.h>

#include "mtrain/base/text.h"
#include "runtime_api.h"
#include "system/process.h"

using namespace mtrain;
using testing::has;
using testing::Outcome;

namespace {

Outcome mtrain_with(std::vector<std::string> words) {
  words.insert(words.begin(), testing::mtrain_binary());
  return testing::run({words});
}
bool device() { return cuda::judge(cuda::ask_machine()).probe.devices > 0; }

}  // namespace

TEST_CASE("the plugin is listed with its architectures, and loads without a driver") {
  Outcome listed = mtrain_with({"plugins", "ls"});
  CHECK(listed.status == 0);
  CHECK(has(listed.out, "NVIDIA GPUs: A100, H100, H200, B200"));
  Outcome inspected = mtrain_with({"plugins", "inspect", "cuda"});
  INFO(inspected.out << inspected.err);
  CHECK(inspected.status == 0);
}

TEST_CASE("doctor says in one line whether there is a GPU, and that having none is no fault") {
  Outcome out = mtrain_with({"doctor"});
  INFO(out.out << out.err);
  CHECK(has(out.out, device() ? "compute capability" : "ok   device   backend cuda: "));
}

TEST_CASE(
    "a recipe that asks for a GPU where there is none is refused at its place, with status 10 and "
    "both ways out") {
  if (device()) {
    MESSAGE("skipped: this machine has a GPU");
    return;
  }
  testing::Scratch scratch("mt-cuda");
  std::string recipe = scratch.write("tiny.yaml", testing::tiny_recipe());
  Outcome out =
      mtrain_with({recipe, "dist.backend=cuda", cat("run.dir=", (scratch / "run").string())});
  INFO(out.out << out.err);
  CHECK(out.status == 10);
  CHECK(has(out.err, ": dist.backend=cuda: this machine has no NVIDIA driver"));
  CHECK(has(out.err, "command line, argument 2: dist.backend=cuda"));
  CHECK(has(out.err, "dist.backend=cpu"));
  CHECK(has(out.err, "nvidia-smi"));
  CHECK_FALSE(std::filesystem::exists(scratch / "run" / "checkpoints"));
}
