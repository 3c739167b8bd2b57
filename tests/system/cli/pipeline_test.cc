// A model split into stages trains as on one rank.
#include <fstream>
#include <map>
#include <optional>
#include <span>

#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/checkpoint/store.h"
#include "roots.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

// Without clipping: the gradient norm is a sum over ranks, in another order for every layout.
std::string recipe_text(const std::string& model) {
  return quant_recipe(
      model + ", layers: 8, hidden_size: 32, heads: 4, ffn_hidden_size: 64, seq_length: 24",
      "train: {steps: 6, micro_batch_size: 1, global_batch_size: 8}\n"
      "optimizer: {lr: 2e-3, clip_grad: 0}\nscheduler: {warmup_steps: 2}\n"
      "checkpoint: {interval: 3}\nvalidation: {interval: 3, steps: 1}\n");
}

const std::vector<Words> kLayouts = {
    {"dist.nproc=2", "dist.pp=2"},
    {"dist.nproc=4", "dist.pp=4", "dist.schedule=gpipe"},
    {"dist.nproc=2", "dist.pp=2", "dist.vp=2", "dist.schedule=interleaved"},
    {"dist.nproc=4", "dist.pp=4", "dist.vp=2", "dist.schedule=interleaved",
     "comm_overlap.p2p=true"},
    {"dist.nproc=2", "dist.pp=2", "dist.schedule=zb_h1", "dist.first_stage_layers=3"},
    {"dist.nproc=3", "dist.pp=3", "dist.layout=Et|tttttt|tL", "dist.schedule=zb_h1"},
    {"dist.nproc=4", "dist.pp=4", "dist.vp=2", "dist.schedule=zb_v"},
    {"dist.nproc=2", "dist.pp=2", "dist.variable_seq_lengths=true", "model.recompute=full"},
};

/// Tensors of zeros, by name.
using Shapes = std::map<std::string, mtrain::Shape>;

/// Writes a Hugging Face folder of llama_tiny's configuration with other tensors.
/// With `head`, config.json ties the head to the embedding, and lm_head.weight has that value.
std::string write_hf_folder(const fs::path& folder, const Shapes& tensors,
                            std::optional<float> head = {}) {
  const fs::path golden = source_root() / "tests/golden/llama_tiny";
  fs::create_directories(folder);
  Json config = Json::parse(std::ifstream(golden / "config.json"));
  config["tie_word_embeddings"] = head.has_value();
  std::ofstream(folder / "config.json") << config.dump();
  std::vector<mtrain::TensorSpec> specs;
  for (const auto& [name, shape] : tensors) specs.push_back({name, mtrain::DType::f32, shape});
  mtrain::SafetensorsWriter writer(folder / "model.safetensors", "test", specs);
  for (const auto& spec : writer.order()) {
    const float value = spec.name == "lm_head.weight" ? head.value_or(0) : 0;
    const std::vector<float> values(static_cast<size_t>(spec.shape.numel()), value);
    writer.write(std::as_bytes(std::span(values)));
  }
  writer.finish();
  return folder.string();
}

/// Writes a checkpoint that says of itself what `like` says, with other tensors.
std::string write_run(const fs::path& folder, const mtrain::CheckpointStore& like,
                      const Shapes& tensors) {
  std::vector<std::vector<std::byte>> zeros;
  std::vector<mtrain::Slice> slices;
  for (const auto& [name, shape] : tensors) {
    zeros.emplace_back(static_cast<size_t>(shape.numel()) * sizeof(float));
    slices.push_back(mtrain::whole_slice(name, mtrain::DType::f32, shape, zeros.back()));
  }
  mtrain::CheckpointStore store(folder / "checkpoints", mtrain::StoreOptions{});
  store.save(1, slices, like.meta(1));
  return folder.string();
}

}  // namespace

TEST_CASE("start weights that do not fit the whole model are refused as on one rank") {
  Scratch scratch("mtrain-pp-weights");
  auto refused = [&](const std::string& recipe, const std::string& weights,
                     const std::vector<std::string>& named) {
    const Words words = {"model.init_from=" + weights};
    const Outcome one = run_training(recipe, scratch / "run", words);
    CHECK(one.status == 12);
    for (const std::string& part : named)
      CHECK_MESSAGE(one.err.find(part) != std::string::npos, part, " is not in ", one.err);
    const Outcome two =
        run_training(recipe, scratch / "run", with(words, {"dist.nproc=2", "dist.pp=2"}));
    CHECK(two.status == one.status);
    CHECK(two.err == one.err);
  };
  // A Hugging Face folder. Stage 0 has the first block, stage 1 the second one.
  const std::string tiny = scratch.write(
      "hf.yaml",
      "model: {type: llama, seq_length: 16}\ntokenizer: {type: \"null\", vocab_size: 199}\n"
      "dataset: mock\ntrain: {steps: 1, global_batch_size: 2}\nlogger: {tensorboard: false}\n");
  Shapes tensors;
  const mtrain::SafetensorsFile golden(source_root() / "tests/golden/llama_tiny/model.safetensors");
  for (const auto& t : golden.tensors()) tensors[t.name] = t.shape;
  const std::string down[] = {"model.layers.0.mlp.down_proj.weight",
                              "model.layers.1.mlp.down_proj.weight"};
  Shapes less = tensors, more = tensors;
  less.erase(down[1]);
  refused(tiny, write_hf_folder(scratch / "less", less), {down[1] + " is missing"});
  more["model.layers.1.mlp.extra.weight"] = {32, 80};
  refused(tiny, write_hf_folder(scratch / "more", more),
          {"tensor model.layers.1.mlp.extra.weight [32, 80] matches no parameter"});
  more.erase(down[0]);
  more.erase(down[1]);
  refused(tiny, write_hf_folder(scratch / "other", more),
          {down[0] + " is missing", down[1] + " is missing", "extra.weight"});
  // The second copy of a tied matrix: its values are compared, on the stages that have the matrix.
  refused(tiny, write_hf_folder(scratch / "other-head", tensors, 0.5f),
          {"tensor lm_head.weight differs from model.embed_tokens.weight at element 0 (0.5 and 0)",
           "tie_word_embeddings"});
  train(tiny, scratch / "tied",
        {"model.init_from=" + write_hf_folder(scratch / "same-head", tensors, 0.0f), "dist.nproc=2",
         "dist.pp=2"});
  // A run of mtrain.
  const std::string recipe = scratch.write("pp.yaml", recipe_text("type: llama, kv_heads: 2"));
  train(recipe, scratch / "base", {"train.steps=1", "scheduler.warmup_steps=0"});
  const mtrain::CheckpointStore base(scratch / "base/checkpoints");
  tensors.clear();
  for (const auto& t : base.tensors(1)) tensors[t.name] = t.shape;
  less = more = tensors;
  for (const char* part : {"", ".exp_avg", ".exp_avg_sq"})
    CHECK(less.erase(std::string("layers.7.attn.out.weight") + part) == 1);
  refused(recipe, write_run(scratch / "run-less", base, less),
          {"has no tensor 'layers.7.attn.out.weight'"});
  more["layers.8.attn.out.weight"] = {32, 32};
  refused(recipe, write_run(scratch / "run-more", base, more),
          {"has 1 parameter that this model does not have:\n  layers.8.attn.out.weight [32, 32]"});
  train(recipe, scratch / "run",
        {"model.init_from=" + write_run(scratch / "run-same", base, tensors), "dist.nproc=2",
         "dist.pp=2", "train.steps=1", "scheduler.warmup_steps=0"});
}

TEST_CASE("pipelines of every schedule end in the bits of one rank") {
  Scratch scratch("mtrain-pp-bits");
  std::string recipe = scratch.write("pp.yaml", recipe_text("type: llama, kv_heads: 2"));
  train(recipe, scratch / "1", {});
  std::string expected = digest(scratch / "1");
  std::vector<Json> losses = rows(scratch / "1", "grad_norm");
  for (const Words& layout : kLayouts) {
    std::string words = text(layout);
    CAPTURE(words);
    fs::path folder = scratch / "run";
    train(recipe, folder, layout);
    CHECK(digest(folder) == expected);
    std::vector<Json> seen = rows(folder, "grad_norm");
    REQUIRE(seen.size() == losses.size());
    for (size_t i = 0; i < seen.size(); ++i) {
      CHECK(seen[i]["loss"] == losses[i]["loss"]);
      CHECK(apart(seen[i], losses[i], "grad_norm") < 1e-6);
    }
    fs::remove_all(folder);
  }
}

TEST_CASE("a table shared by the first and the last stage stays one table") {
  Scratch scratch("mtrain-pp-tied");
  std::string recipe = scratch.write("pp.yaml", recipe_text("type: gpt2, dropout: 0.1"));
  Words clip = {"optimizer.clip_grad=0.5"};
  train(recipe, scratch / "1", clip);
  std::vector<Json> losses = rows(scratch / "1", "grad_norm");
  for (const Words& layout : kLayouts) {
    std::string words = text(layout);
    CAPTURE(words);
    fs::path folder = scratch / "run";
    train(recipe, folder, with(layout, clip));
    std::vector<Json> seen = rows(folder, "grad_norm");
    REQUIRE(seen.size() == losses.size());
    CHECK(seen[0]["loss"] == losses[0]["loss"]);
    CHECK(apart(seen[0], losses[0], "grad_norm") < 1e-6);
    for (size_t i = 0; i < seen.size(); ++i) CHECK(apart(seen[i], losses[i], "loss") < 1e-5);
    fs::remove_all(folder);
  }
}

TEST_CASE(
    "a pipeline's checkpoint goes on in any other layout, with data and tensor parallelism next to "
    "it") {
  Scratch scratch("mtrain-pp-resume");
  std::string recipe =
      scratch.write("pp.yaml", recipe_text("type: llama, kv_heads: 2, tie_embeddings: true"));
  train(recipe, scratch / "1", {});
  std::vector<Json> losses = rows(scratch / "1", "grad_norm");
  const Words ways[] = {{"dist.nproc=4", "dist.pp=2", "dist.tp=2"},
                        {"dist.nproc=4", "dist.pp=2", "dist.vp=2", "dist.schedule=zb_v"},
                        {},
                        {"dist.nproc=4", "dist.pp=4", "dist.schedule=zb_h1"}};
  fs::path folder = scratch / "run";
  int64_t steps = 0;
  for (const Words& way : ways) {
    Words words = way;
    words.push_back("train.steps=" + std::to_string(steps += 2));
    words.push_back("scheduler.decay_steps=6");
    std::string now = text(words);
    CAPTURE(now);
    train(recipe, folder, words);
  }
  std::vector<Json> seen = rows(folder, "grad_norm");
  REQUIRE(seen.size() == 8);
  for (size_t i = 0; i < 6; ++i) CHECK(apart(seen[i], losses[i], "loss") < 1e-5);
}

TEST_CASE(
    "pipelines with data parallelism that shards and overlaps, weight gradients apart or not") {
  Scratch scratch("mtrain-pp-zero");
  std::string recipe = scratch.write("pp.yaml", recipe_text("type: gpt2"));
  train(recipe, scratch / "1", {});
  std::vector<Json> losses = rows(scratch / "1", "grad_norm");
  const Words ways[] = {{"dist.schedule=1f1b"},
                        {"dist.schedule=zb_h1"},
                        {"dist.schedule=zb_v", "dist.vp=2"},
                        {"dist.schedule=interleaved", "dist.vp=2"}};
  for (const Words& way : ways)
    for (const char* zero : {"dist.zero=0", "dist.zero=1", "dist.zero=2", "dist.zero=3"}) {
      Words words = way;
      for (const char* word : {"dist.nproc=4", "dist.pp=2", "ddp.overlap_grad_reduce=true", zero})
        words.emplace_back(word);
      std::string now = text(words);
      CAPTURE(now);
      fs::path folder = scratch / "run";
      Outcome out = run_training(recipe, folder, words);
      CHECK_MESSAGE(out.status == 0, out.err);
      std::vector<Json> seen = rows(folder, "grad_norm");
      CHECK(seen.size() == losses.size());
      for (size_t i = 0; i < std::min(seen.size(), losses.size()); ++i) {
        CHECK(apart(seen[i], losses[i], "loss") < 1e-5);
        if (i == 0) CHECK(apart(seen[i], losses[i], "grad_norm") < 1e-6);
      }
      fs::remove_all(folder);
    }
}

TEST_CASE("a written schedule runs, and one that cannot is refused with what waits for what") {
  Scratch scratch("mtrain-pp-file");
  std::string recipe = scratch.write("pp.yaml", recipe_text("type: llama, kv_heads: 2"));
  Words layout = {"dist.nproc=2",
                  "dist.pp=2",
                  "train.steps=2",
                  "scheduler.warmup_steps=0",
                  "train.global_batch_size=3",
                  "dist.schedule_file=" + (scratch / "zb.txt").string()};
  scratch.write("zb.txt",
                "# ZB-H1\n0F0 0F1 0B0 0W0 0F2 0B1 0W1 0B2 0W2\n"
                "1F0 1B0 1F1 1B1 1W0 1F2 1B2 1W1 1W2\n");
  train(recipe, scratch / "1",
        {"train.steps=2", "scheduler.warmup_steps=0", "train.global_batch_size=3"});
  train(recipe, scratch / "2", layout);
  CHECK(digest(scratch / "2") == digest(scratch / "1"));
  auto refused = [&](const char* schedule, const char* why) {
    scratch.write("zb.txt", schedule);
    Outcome bad = run_training(recipe, scratch / "3", layout);
    CHECK(bad.status == 10);
    CHECK_MESSAGE(bad.err.find(why) != std::string::npos, bad.err);
  };
  refused("0B0 0F0 0F1 0B1 0F2 0B2\n1F0 1B0 1F1 1B1 1F2 1B2\n",
          "rank 0 waits forever at 0B0 for 0F0");
  refused("0F0 0B0 0F1 0B1\n1F0 1B0 1F1 1B1\n", "stage 0 never runs forward of 2");
  refused("0F0 0B0\n", "programs for 1 rank, but dist.pp is 2");
  refused("0F0 0B0\n0F1 0B1\n", "no rank runs stage 1");
  refused("0F0 oops\n1F0\n", "zb.txt:1:5: wanted");
  refused("0Gather 0F0 0B0 0Release\n1Gather 1F0 1B0 1Release\n",
          "zb.txt has Gather, and dist.zero is 0");
  refused("0F0 0B0 0Scatter0\n1F0 1B0 1Scatter0\n", "zb.txt has Scatter, and dist.zero is 0");
}

TEST_CASE(
    "the memory plan of a pipeline's first rank is what the rank takes, but for tensors that went "
    "sooner than they might") {
  Scratch scratch("mtrain-pp-memory");
  std::string recipe = scratch.write("pp.yaml", recipe_text("type: gpt2"));
  for (const Words& layout : kLayouts) {
    std::string now = text(layout);
    CAPTURE(now);
    Outcome out =
        cli(with({"bench", recipe, "--steps", "2", "--warmup", "1", "--json", "--plain"}, layout));
    REQUIRE_MESSAGE(out.status == 0, out.err);
    Json seen = Json::parse(out.out);
    auto planned = seen["planned_memory"]["bytes"].get<int64_t>(),
         taken = seen["tensor_memory"]["bytes"].get<int64_t>();
    const int64_t stream = 24 * 32 * 4, micro_batches = 8;
    CHECK(taken <= planned + stream);  // a send may not be over when the next result is made
    CHECK(planned <= taken + 2 * stream * micro_batches);  // of the two chunks that a rank may have
    CHECK(seen["planned_memory"]["uses"]["optimizer"] ==
          seen["tensor_memory"]["uses"]["optimizer"]);
  }
}

TEST_CASE("check reports bubble and memory of a pipeline, and refuses what it cannot run") {
  Scratch scratch("mtrain-pp-check");
  std::string recipe = scratch.write("pp.yaml", recipe_text("type: llama, kv_heads: 2"));
  auto check = [&](const Words& words, const char* what) {
    Outcome out = cli(with({"check", recipe, "dist.nproc=2", "dist.pp=2"}, words));
    std::string text = out.out + out.err;
    CHECK_MESSAGE(text.find(what) != std::string::npos, text);
    return out.status;
  };
  CHECK(check({},
              "pipeline 1f1b, 2 ranks, stages Etttt|ttttL, 8 micro-batches: bubble 11.1 %, ranks "
              "keep activations of at most 1, 0.5 ") == 0);
  CHECK(check({"dist.schedule=zb_h1"}, "bubble 4.0 %") == 0);              // (p-1)/(3m+p-1)
  CHECK(check({"dist.vp=2", "dist.schedule=zb_v"}, "bubble 2.0 %") == 0);  // (p-1)/(6m+p-1)
  CHECK(check({"--memory"}, "memory of pipeline rank 1: ") == 0);
  CHECK(check({"dist.schedule=zb_h1", "ddp.in_order=true"},
              "this schedule cannot keep the gradients of micro-batches separate") == 10);
  CHECK(check({"dist.schedule_file=none.txt"}, "none.txt") == 10);
  CHECK(check({"dist.pp=1", "dist.schedule_file=none.txt"}, "there is no pipeline to schedule") ==
        10);
}
