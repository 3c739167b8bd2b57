// Communication that overlaps with computation, over processes: the same bits as without, and as
// threads.
#include <doctest/doctest.h>

#include "mpi_job.h"

using namespace mtrain::testing;

namespace {

using Words = std::vector<std::string>;

std::string recipe_text(const std::string& model) {
  return "model: {" + model +
         ", layers: 2, hidden_size: 64, heads: 4, kv_heads: 2, ffn_hidden_size: 128, seq_length: "
         "64}\n"
         "dataset: mock\n"
         "train: {steps: 3, micro_batch_size: 1, global_batch_size: 8}\n"
         "scheduler: {warmup_steps: 1}\n"
         "run: {threads: 1}\n"
         "dist: {silence_seconds: 120}\n"
         "logger: {tensorboard: false}\n";
}

std::string trained(const fs::path& folder, Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  words.push_back("run.dir=" + folder.string());
  Outcome out = cli(words);
  REQUIRE_MESSAGE(out.status == 0, out.err);
  return digest(folder);
}

}  // namespace

TEST_CASE("comm_overlap over processes: the same bits on and off") {
  MT_NEEDS_MPI();
  Scratch scratch("mtrain-mpi-overlap");
  std::string llama = scratch.write("llama.yaml", recipe_text("type: llama"));
  std::string moe =
      scratch.write("moe.yaml", recipe_text("type: moe, moe: {experts: 4, top_k: 2, "
                                            "ffn_hidden_size: 64, shared_ffn_hidden_size: 64}"));
  struct Case {
    std::string recipe;
    Words layout, overlap;
  };
  const Case cases[] = {
      {llama, {"dist.tp=2", "dist.sp=true"}, {"comm_overlap.tp=true"}},
      {moe, {"dist.ep=2"}, {"comm_overlap.moe=true", "comm_overlap.dispatch_wgrad=true"}},
      {moe, {"dist.ep=2"}, {"model.moe.shared_overlap=true"}},
      {llama,
       {"dist.pp=2"},
       {"comm_overlap.delay_wgrad=true", "comm_overlap.embedding_wgrad=true"}},
  };
  int at = 0;
  for (const Case& c : cases) {
    CAPTURE(c.overlap[0]);
    auto folder = [&](const char* name) { return scratch / (std::to_string(at) + name); };
    Words on = c.layout;
    on.insert(on.end(), c.overlap.begin(), c.overlap.end());
    std::string off =
        trained(folder("off"), {"--nproc", "2", c.recipe, "-q", "dist.comm=mpi"}, c.layout);
    CHECK(trained(folder("on"), {"--nproc", "2", c.recipe, "-q", "dist.comm=mpi"}, on) == off);
    CHECK(trained(folder("threads"), {c.recipe, "-q", "dist.nproc=2"}, on) == off);
    ++at;
  }
}
