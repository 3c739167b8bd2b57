// A model whose blocks share parameters or are created in another order than they compute
// (tests/fixtures/plugins/shared_blocks_model.cc): it trains as on one rank wherever it declares
// its parts, and is refused before the first step where they matter and it does not.
#include "../cli/training_run.h"
#include "roots.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

const Words kPlugins = {"MTRAIN_PLUGIN_PATH=" + (build_root() / "tests/plugins").string()};

// One micro-batch per rank of two: then every way of sharing adds gradients up in the same order.
std::string recipe_text(const std::string& model) {
  return quant_recipe("type: shared_blocks, layers: 4, seq_length: 32, " + model,
                      "train: {steps: 4, micro_batch_size: 1, global_batch_size: 2}\n"
                      "optimizer: {lr: 2e-3}\nscheduler: {warmup_steps: 0}\n"
                      "checkpoint: {interval: 4}\nvalidation: {interval: 4, steps: 1}\n");
}

Outcome start(const std::string& recipe, const fs::path& folder, const Words& words) {
  return cli(with({recipe, "-q", "run.dir=" + folder.string()}, words), kPlugins);
}

void train_shared(const std::string& recipe, const fs::path& folder, const Words& words) {
  Outcome out = start(recipe, folder, words);
  REQUIRE_MESSAGE(out.status == 0, text(words), out.err);
}

void check_close(const fs::path& run, const fs::path& other) {
  const std::vector<Json> seen = rows(run, "grad_norm"), expected = rows(other, "grad_norm");
  REQUIRE(seen.size() == 4);
  REQUIRE(expected.size() == 4);
  for (size_t i = 0; i < seen.size(); ++i) {
    CHECK(apart(seen[i], expected[i], "loss") < 1e-5);
    CHECK(apart(seen[i], expected[i], "grad_norm") < 1e-4);
  }
  CHECK(apart(rows(run, "val_loss").back(), rows(other, "val_loss").back(), "val_loss") < 1e-5);
}

const char* const kModels[] = {"sets: 2", "one_attention: true", "backwards: true",
                               "sets: 3, one_attention: true, backwards: true"};
const Words kSharings[] = {
    {"ddp.overlap_grad_reduce=true", "ddp.bucket_size=9000"},
    {"dist.zero=1", "ddp.overlap_grad_reduce=true", "ddp.overlap_param_gather=true"},
    {"dist.zero=2"},
    {"dist.zero=2", "ddp.overlap_grad_reduce=true", "ddp.overlap_param_gather=true"},
    {"dist.zero=3"},
    {"dist.zero=3", "ddp.overlap_grad_reduce=true", "ddp.overlap_param_gather=true",
     "model.recompute=full", "model.recompute_layers=2"},
    {"dist.zero=3", "dist.resident_stages=1"}};

}  // namespace

TEST_CASE("a model that declares its parts ends in the same bits in every way to share state") {
  Scratch scratch("mtrain-shared-blocks");
  for (const char* model : kModels) {
    CAPTURE(model);
    const std::string recipe = scratch.write("shared.yaml", recipe_text(model));
    train_shared(recipe, scratch / "one", {});
    train_shared(recipe, scratch / "plain", {"dist.nproc=2"});
    check_close(scratch / "plain", scratch / "one");
    const std::string expected = digest(scratch / "plain");
    REQUIRE(expected.size() == 65);
    for (const Words& sharing : kSharings) {
      const std::string words = text(sharing);
      CAPTURE(words);
      train_shared(recipe, scratch / "run", with({"dist.nproc=2"}, sharing));
      CHECK(digest(scratch / "run") == expected);
      fs::remove_all(scratch / "run");
    }
    for (const char* folder : {"one", "plain"}) fs::remove_all(scratch / folder);
  }
}

TEST_CASE("a model whose parts are created backwards trains in pipelines as on one rank") {
  Scratch scratch("mtrain-shared-blocks-pp");
  const std::string recipe = scratch.write("shared.yaml", recipe_text("backwards: true"));
  const Words batch = {"train.global_batch_size=8"};
  train_shared(recipe, scratch / "one", batch);
  for (const Words& layout :
       {Words{"dist.nproc=4", "dist.pp=2", "dist.zero=3", "ddp.overlap_grad_reduce=true"},
        Words{"dist.nproc=4", "dist.pp=2", "dist.zero=2", "dist.schedule=zb_h1"},
        Words{"dist.nproc=4", "dist.pp=2", "dist.vp=2", "dist.schedule=zb_v",
              "ddp.overlap_grad_reduce=true"}}) {
    const std::string words = text(layout);
    CAPTURE(words);
    train_shared(recipe, scratch / "run", with(batch, layout));
    check_close(scratch / "run", scratch / "one");
    fs::remove_all(scratch / "run");
  }
}

TEST_CASE("the lists of steps have the parts that blocks share") {
  Scratch scratch("mtrain-shared-blocks-lists");
  const std::string recipe = scratch.write("shared.yaml", recipe_text("sets: 2"));
  auto lists = [&](const Words& words) {
    Outcome out =
        cli(with({"check", recipe, "dist.nproc=2", "--memory", "--schedule", "steps"}, words),
            kPlugins);
    REQUIRE_MESSAGE(out.status == 0, out.err);
    return out.out;
  };
  const std::string reduced = lists({"dist.zero=2"}), gathered = lists({"dist.zero=3"});
  const char* reductions =
      "B(head) Reduce(head) B(3) B(2) B(1) Reduce(layers.1) B(0) Reduce(layers.0) B(embed) "
      "Reduce(embed)\n";
  CHECK_MESSAGE(reduced.find(reductions) != std::string::npos, reduced);
  const char* gathers =
      "Gather(layers.0) F(0) Release(layers.0) Gather(layers.1) F(1) Release(layers.1) "
      "Gather(layers.0) F(2) Release(layers.0) Gather(layers.1) F(3) Release(layers.1) "
      "Gather(head) F(head)\n";
  CHECK_MESSAGE(gathered.find(gathers) != std::string::npos, gathered);
}

TEST_CASE("a model that does not declare its parts is refused before the first step, with names") {
  Scratch scratch("mtrain-shared-blocks-undeclared");
  struct Row {
    const char* model;
    Words words;
    std::vector<std::string> parts;  // of the error
  };
  const std::string remedy = "Model::parts()", overlap = "ddp.overlap_grad_reduce=true",
                    small = "ddp.bucket_size=9000";  // one bucket is reduced when all is done
  const Row refused[] = {
      {"sets: 2",
       {overlap, small},
       {"'layers.1.mlp.down.weight' of part 1 gets a gradient in 0B", " after B(0), but Reduce(",
        "as ddp.overlap_grad_reduce=true wants", "set ddp.overlap_grad_reduce=false", remedy}},
      {"sets: 2",
       {"dist.zero=2"},
       {"'layers.1.mlp.down.weight' of part 1 gets a gradient in 0B", " after B(0), but Reduce(1)",
        "as dist.zero 2 and 3 want", "set dist.zero to 0 or 1", remedy}},
      {"sets: 2",
       {"dist.zero=3"},
       {"'layers.0.norm1.weight' of part 0 is read in 0F0 after F(1)",
        "where dist.zero=3 does not gather it", "set dist.zero to 0 or 1", remedy}},
      {"one_attention: true",
       {"dist.zero=3", overlap},
       {"'shared.", "is read in 0F0 after F(0)", "where dist.zero=3 does not gather it", remedy}},
      {"backwards: true",
       {overlap, small, "dist.zero=1"},
       {" gets a gradient in 0B", "as ddp.overlap_grad_reduce=true wants", remedy}},
      {"backwards: true",
       {"dist.zero=3"},
       {" is read in 0F0 after F(", "where dist.zero=3 does not gather it", remedy}},
  };
  for (const Row& row : refused) {
    const std::string recipe =
        scratch.write("shared.yaml", recipe_text(std::string(row.model) + ", declares: false"));
    const std::string words = row.model + (": " + text(row.words));
    CAPTURE(words);
    Outcome out = start(recipe, scratch / "run", with({"dist.nproc=2"}, row.words));
    CHECK(out.status == 10);
    for (const std::string& part : row.parts)
      CHECK_MESSAGE(out.err.find(part) != std::string::npos, part, " in ", out.err);
    CHECK(rows(scratch / "run").empty());
    fs::remove_all(scratch / "run");
    train_shared(recipe, scratch / "run", {"dist.nproc=2", "dist.zero=1"});
    fs::remove_all(scratch / "run");
  }
}
