// dist.resident_stages: gathers and releases of whole stages are actions of the step's program.
// They change memory, bytes and time, and no bit.
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

std::string resident_recipe(const std::string& model) {
  return quant_recipe(
      model + ", layers: 8, hidden_size: 32, heads: 4, ffn_hidden_size: 64, seq_length: 24",
      "train: {steps: 4, micro_batch_size: 1, global_batch_size: 8}\n"
      "optimizer: {lr: 2e-3, clip_grad: 0}\nscheduler: {warmup_steps: 2}\n"
      "validation: {interval: 2, steps: 1}\n");
}

const Words kPipeline = {"dist.nproc=4", "dist.pp=2"},
            kInterleaved = {"dist.nproc=4", "dist.pp=2", "dist.vp=2", "dist.schedule=interleaved"},
            kZbV = {"dist.nproc=4", "dist.pp=2", "dist.vp=2", "dist.schedule=zb_v"};
const Words kOverlap = {"ddp.overlap_grad_reduce=true", "ddp.overlap_param_gather=true"};

Words resident(int stages) {
  return {"dist.zero=3", "dist.resident_stages=" + std::to_string(stages)};
}

struct LeftLosses {
  std::string weights;
  std::vector<Json> losses;
};

LeftLosses losses_left_by(const std::string& recipe, const fs::path& folder, const Words& words) {
  train(recipe, folder, words);
  LeftLosses left{.weights = digest(folder), .losses = {}};
  for (const char* key : {"loss", "val_loss"})
    for (const Json& row : rows(folder, key)) left.losses.push_back(row.at(key));
  fs::remove_all(folder);
  return left;
}

Json bench(const std::string& recipe, const Words& words) {
  Outcome out =
      cli(with({"bench", recipe, "--steps", "2", "--warmup", "1", "--json", "--plain"}, words));
  REQUIRE_MESSAGE(out.status == 0, out.err);
  return Json::parse(out.out);
}

int64_t total(const Json& memory) {
  int64_t bytes = 0;
  for (const auto& use : memory["uses"]) bytes += use.get<int64_t>();
  return bytes;
}

void check_has(const std::string& text, const std::string& part) {
  CHECK_MESSAGE(has(text, part), text);
}

}  // namespace

TEST_CASE("stages that are gathered whole train to the bits of blocks that are gathered") {
  Scratch scratch("mtrain-resident");
  struct Row {
    const char* model;
    Words layout;
    int stages;
  };
  const char *llama = "type: llama, kv_heads: 2",
             *gpt2 = "type: gpt2, dropout: 0.1, tie_embeddings: true";
  for (const Row& row :
       {Row{llama, {"dist.nproc=2"}, 1},
        {llama, kPipeline, 1},
        {llama, kInterleaved, 1},
        {llama, with(kInterleaved, kOverlap), 2},
        {llama, with(kInterleaved, {"comm_overlap.p2p=true", "comm_overlap.delay_wgrad=true"}), 1},
        {llama, with(kZbV, kOverlap), 1},
        {gpt2, with(kZbV, {"model.recompute=full"}), 1},
        {gpt2, with(kPipeline, {"dist.schedule=gpipe"}), 1}}) {
    std::string recipe = scratch.write("r.yaml", resident_recipe(row.model)),
                words = text(row.layout);
    CAPTURE(words);
    CAPTURE(row.stages);
    LeftLosses blocks = losses_left_by(recipe, scratch / "run", with(row.layout, resident(0)));
    LeftLosses stages =
        losses_left_by(recipe, scratch / "run", with(row.layout, resident(row.stages)));
    CHECK(blocks.losses.size() >= 4);
    CHECK(stages.losses == blocks.losses);
    CHECK(stages.weights == blocks.weights);
  }
}

TEST_CASE("one micro-batch per rank: pipelines that gather stages end in the bits of dist.zero=0") {
  Scratch scratch("mtrain-resident-zero");
  std::string recipe = scratch.write("r.yaml", resident_recipe("type: llama, kv_heads: 2"));
  Words one = {"train.global_batch_size=2"};
  LeftLosses alone = losses_left_by(recipe, scratch / "run", one);
  for (const Words& words :
       {with(kPipeline, {"dist.zero=0"}), with(kPipeline, resident(0)),
        with(kPipeline, resident(1)), with(with(kPipeline, resident(1)), kOverlap)}) {
    std::string now = text(words);
    CAPTURE(now);
    LeftLosses left = losses_left_by(recipe, scratch / "run", with(words, one));
    CHECK(left.losses == alone.losses);
    CHECK(left.weights == alone.weights);
  }
}

TEST_CASE("the memory plan counts the parameters of the stages that are gathered at once") {
  Scratch scratch("mtrain-resident-memory");
  std::string recipe = scratch.write("r.yaml", resident_recipe("type: llama, kv_heads: 2"));
  // Wide blocks and few tokens: parameters decide where the peak is.
  const Words wide = {"model.hidden_size=128", "model.ffn_hidden_size=384", "model.seq_length=8"};
  auto check = [&](const Words& layout, int most) {
    int64_t before = 0;
    for (int stages = 0; stages <= most; ++stages) {
      Words words = with(with(layout, wide), resident(stages));
      std::string now = text(words);
      CAPTURE(now);
      Json seen = bench(recipe, words);
      const int64_t planned = total(seen["planned_memory"]), taken = total(seen["tensor_memory"]);
      const int64_t stream = 8 * 128 * 4,
                    micro_batches = 4;  // of tensors that went sooner or later
      CHECK(std::abs(taken - planned) <= 2 * stream * micro_batches);
      // Each further stage adds the gathered values of two of eight blocks, or of all eight.
      const int64_t block = 4 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 384 * 128);
      if (stages > 0) CHECK(planned > before + block);
      before = planned;
    }
  };
  check({"dist.nproc=2"}, 1);
  check(kInterleaved, 2);
}

TEST_CASE("check lists what happens inside forward and backward, and draws it") {
  Scratch scratch("mtrain-steps-check");
  std::string llama = scratch.write("r.yaml", resident_recipe("type: llama, kv_heads: 2")),
              moe = scratch.write(
                  "moe.yaml",
                  resident_recipe("type: moe, moe: {experts: 4, top_k: 2, ffn_hidden_size: 32}"));
  auto output = [&](const std::string& recipe, const Words& words) {
    Outcome out = cli(with({"check", recipe, "model.layers=2"}, words));
    CHECK_MESSAGE(out.status == 0, out.err);
    return out.out;
  };
  const Words steps = {"--schedule", "steps"}, blocks = {"dist.nproc=2", "dist.zero=3"};
  check_has(
      output(llama, with(blocks, with({"train.global_batch_size=4"}, steps))),
      "  rank 0: 0F0: Gather(embed) F(embed) Release(embed) Gather(0) F(0) Release(0) Gather(1) "
      "F(1) Release(1) Gather(head) F(head)\n"
      "  rank 0: 0B0: B(head) Reduce(head) Release(head) Gather(1) B(1) Reduce(1) Release(1) "
      "Gather(0) B(0) Reduce(0) Release(0) Gather(embed) B(embed) Reduce(embed)\n"
      "  rank 0: 0F1: F(embed) Release(embed) Gather(0) F(0) ");
  check_has(output(llama, with(with(blocks, kOverlap), steps)),
            "0F0: Gather(embed) Gather(0) F(embed) Release(embed) Gather(1) F(0) ");
  check_has(
      output(moe, with({"dist.nproc=2", "dist.ep=2"}, steps)),
      "  rank 0: 0F0 0F1 0F2 and 1 more: F(embed) F(0) Dispatch(0) Experts(0) Combine(0) F(1) "
      "Dispatch(1) Experts(1) Combine(1) F(head)\n"
      "  rank 0: 0B0 0B1 0B2 and 1 more: B(head) Combine(1) Experts(1) Dispatch(1) B(1) ");
  const Words both = {"dist.nproc=4", "dist.pp=2", "dist.ep=2", "dist.zero=3"};
  check_has(
      output(moe, with(both, steps)),
      "  rank 1: 1F0: Gather(1) F(1) Dispatch(1) Experts(1) Combine(1) Release(1) Gather(head) "
      "F(head)\n");
  // Gradients: once, in the last R; with overlap, in the last backward that completes a bucket.
  check_has(output(llama, with({"dist.nproc=2"}, steps)),
            "  rank 0: 0R: Reduce(embed..head)\n"
            "  rank 0: Reduce(embed..head): all-reduce of ");
  const Words each = {"dist.nproc=2", "ddp.overlap_grad_reduce=true", "ddp.bucket_size=1"};
  check_has(
      output(llama, with(each, steps)),
      "  rank 0: 0B3: B(head) Reduce(head) B(1) Reduce(1) B(0) Reduce(0) B(embed) Reduce(embed)\n");
  const std::string built = output(llama, with(with(each, {"--memory"}), steps));
  check_has(built,
            "  rank 0: 0B3: B(head) Reduce(head) Reduce(head #2) B(1) Reduce(1) Reduce(1 #2) ");
  check_has(built, " over the 2 ranks of dp-cp");
  check_has(output(llama, with(each, {"--schedule", "svg", "--gpu", "h100"})),
            "<title>0B3 Reduce(1), ");
  std::string svg = output(moe, with(both, {"--schedule", "svg", "--gpu", "h100"}));
  check_has(svg, "<title>1F0 Dispatch(1), ");
  check_has(svg, "<title>1F0 Gather(1), ");
}

TEST_CASE("check says and draws what a step gathers") {
  Scratch scratch("mtrain-resident-check");
  std::string recipe = scratch.write("r.yaml", resident_recipe("type: llama, kv_heads: 2"));
  auto output = [&](const Words& words) {
    Outcome out = cli(with({"check", recipe}, words));
    CHECK_MESSAGE(out.status == 0, out.err);
    return out.out;
  };
  // Four micro-batches. Each forward and each backward uses the four blocks of a rank. Between a
  // forward and a backward, in either order, the last block stays: three times.
  check_has(output(with(kPipeline, resident(0))),
            "parameters are gathered by block, 29 blocks per step and rank, at most 1 at once");
  check_has(output(with(kPipeline, resident(1))),
            "parameters are gathered by stage, 4 blocks per step and rank, at most 4 at once");
  check_has(output(with(kInterleaved, resident(2))),
            "parameters are gathered by stage, 4 blocks per step and rank, at most 4 at once");
  check_has(output(with(with(kInterleaved, resident(1)), {"--schedule", "text"})),
            "  rank 0: 0Gather 0F0 0SendX0 0F1 ");
  std::string two =
      output({"dist.nproc=2", "dist.zero=2", "train.global_batch_size=4", "--schedule", "text"});
  check_has(two, "  rank 0: 0F0 0B0 0Scatter0 0F1 0B1 0Scatter1 0R\nrank 0 |F0B0  F1B1  |\n");
  check_has(two, "collectives take no time here");
  // 24 tokens: a block's gather takes 1/2 x 4 bytes x 12 operations per byte / 48 = half a forward,
  // and so does the reduction of its gradients in B.
  Words slow = {"dist.nproc=2", "train.global_batch_size=2",
                "--schedule",   "text",
                "--tflops",     "12",
                "--link-gb",    "1000"};
  check_has(output(with(slow, resident(1))), "rank 0 |=F0B0   |\n");
  check_has(output(with(slow, resident(0))), "rank 0 |F0 B0    |\n");
  check_has(output({"dist.nproc=2", "dist.zero=3", "dist.resident_stages=1", "--schedule", "svg",
                    "--gpu", "h100"}),
            "<title>0Gather, 0.0 to ");
  // Tokens on their way to experts take time, and less where another micro-batch is computed.
  std::string moe = scratch.write(
      "moe.yaml", resident_recipe("type: moe, moe: {experts: 4, top_k: 2, ffn_hidden_size: 32}"));
  auto picture = [&](const char* overlap) {
    Outcome out = cli({"check", moe, "dist.nproc=2", "dist.ep=2", overlap, "--schedule", "text",
                       "--tflops", "10", "--link-gb", "1000"});
    CHECK_MESSAGE(out.status == 0, out.err);
    return out.out.find("|\n") - out.out.find("rank 0 |");
  };
  CHECK(picture("comm_overlap.moe=true") < picture("comm_overlap.moe=false"));
  CHECK(cli({"check", recipe, "--tflops", "12"}).status == 2);  // without --schedule
  CHECK(cli({"check", recipe, "--schedule", "png"}).status == 2);
  Outcome refused = cli({"check", recipe, "dist.nproc=2", "dist.resident_stages=1"});
  CHECK(refused.status == 10);
  check_has(refused.err, "only dist.zero=3 gathers parameters");
}
