// Groups of parameters in whole runs: the same bits in each layout, what check and a run show, what
// is refused, and what a resume says.
#include "done.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

std::string grouped_recipe(const std::string& model = "kv_heads: 2") {
  return quant_recipe(
      "type: llama, layers: 2, hidden_size: 32, heads: 4, ffn_hidden_size: 72, "
      "seq_length: 24, " +
          model,
      "train: {steps: 6, micro_batch_size: 2, global_batch_size: 4}\n"
      "optimizer:\n  lr: 4e-3\n  embedding_lr: 1e-3\n  embedding_min_lr: 1e-4\n"
      "  layer_decay: 0.5\n"
      "  groups: [{role: norm, weight_decay: 0.05, lr_scale: 2}, "
      "{match: 'layers.*.mlp.*', lr: 1e-3}]\n"
      "scheduler: {warmup_steps: 2, min_lr: 1e-5}\n"
      "checkpoint: {interval: 3}\nvalidation: {interval: 0}\n");
}

std::vector<double> step_losses(const fs::path& folder) {
  std::vector<double> out;
  for (const Json& row : rows(folder, "grad_norm")) out.push_back(row.at("loss").get<double>());
  return out;
}

}  // namespace

TEST_CASE("groups of parameters train to the same bits with every sharing of state") {
  const Scratch scratch("mtrain-groups-zero");
  const std::string recipe = scratch.write("g.yaml", grouped_recipe());
  for (const char* dtype : {"fp32", "bf16"}) {
    const Words base = {"dist.nproc=2", std::string("mixed_precision.dtype=") + dtype};
    train(recipe, scratch / "plain", base);
    train(recipe, scratch / "even",
          with(base, {"optimizer.groups=[]", "optimizer.layer_decay=1",
                      "optimizer.embedding_lr=null", "optimizer.embedding_min_lr=null"}));
    CHECK(digest(scratch / "even") != digest(scratch / "plain"));
    // Small buckets, so that a shard ends within a parameter.
    for (const char* zero : {"1", "2", "3"}) {
      CAPTURE(zero);
      train(recipe, scratch / "shared",
            with(base, {std::string("dist.zero=") + zero, "ddp.bucket_size=3000"}));
      CHECK(digest(scratch / "shared") == digest(scratch / "plain"));
      forget_checkpoint(scratch / "shared", 6);
      train(recipe, scratch / "shared", base);
      CHECK(digest(scratch / "shared") == digest(scratch / "plain"));
      fs::remove_all(scratch / "shared");
    }
    fs::remove_all(scratch / "plain");
    fs::remove_all(scratch / "even");
  }
}

TEST_CASE("groups of parameters train alike with tensor parallelism, pipelines and a tied table") {
  const Scratch scratch("mtrain-groups-layouts");
  for (const char* model : {"kv_heads: 2", "kv_heads: 2, tie_embeddings: true"}) {
    CAPTURE(model);
    const std::string recipe = scratch.write("g.yaml", grouped_recipe(model));
    train(recipe, scratch / "plain", {});
    const std::vector<double> expected = step_losses(scratch / "plain");
    REQUIRE(expected.size() == 6);
    const Words layouts[] = {{"dist.nproc=2", "dist.tp=2", "dist.sp=true"},
                             {"dist.nproc=2", "dist.pp=2"},
                             {"dist.nproc=4", "dist.pp=2", "dist.zero=1"}};
    for (const Words& layout : layouts) {
      CAPTURE(text(layout));
      train(recipe, scratch / "other", layout);
      const std::vector<double> seen = step_losses(scratch / "other");
      REQUIRE(seen.size() == 6);
      for (size_t i = 0; i < 6; ++i) CHECK(std::fabs(seen[i] / expected[i] - 1) <= 2e-5);
      fs::remove_all(scratch / "other");
    }
    fs::remove_all(scratch / "plain");
  }
}

TEST_CASE("check and a run show a line per group, and metrics have the rates that differ") {
  const Scratch scratch("mtrain-groups-shown");
  scratch.write("g.yaml", grouped_recipe());
  const std::string lines[] = {"norm: 5 parameters of 160, lr 0.004 to 0.008, weight decay 0.05",
                               "embedding_lr: 2 parameters of ", "layers.*.mlp.*: ", "others: "};
  const std::string check = done(scratch, "check g.yaml").out,
                    run = done(scratch, "g.yaml run.dir=run").out;
  for (const std::string& line : lines) {
    CHECK_MESSAGE(has(check, "group " + line), check);
    CHECK_MESSAGE(has(run, "group  " + line), run);
  }
  const std::vector<Json> steps = rows(scratch / "run", "grad_norm");
  REQUIRE(steps.size() == 6);
  CHECK(steps[0].at("lr").get<double>() == doctest::Approx(2e-3));
  CHECK(steps[0].at("lr/norm").get<double>() == doctest::Approx(4e-3));
  CHECK(steps[0].at("lr/embedding_lr").get<double>() == doctest::Approx(5e-4));
  CHECK(steps[1].at("lr/layers.*.mlp.*").get<double>() == doctest::Approx(1e-3));
  CHECK(steps[5].at("lr/embedding_lr").get<double>() >= 1e-4);
}

TEST_CASE("groups that the model does not have are refused by check, and before the first step") {
  const Scratch scratch("mtrain-groups-refused");
  scratch.write("g.yaml", grouped_recipe());
  const std::pair<const char*, const char*> mistakes[] = {
      {"optimizer.groups=[{match:\"layers.*.mlpp.up.weight\",lr:1e-4}]",
       "optimizer.groups[0]: 'layers.*.mlpp.up.weight' matches no parameter of the model"},
      {"optimizer.groups=[{match:\"*.norm1*\",lr:1e-4},{role:norm,lr:1e-5}]",
       "layers.0.norm1.weight is in two groups"},
      {"optimizer.groups=[{role:head,lr:1e-4}]", "and optimizer.embedding_lr"},
      {"optimizer.groups=[{role:norm,lr:1e-6}]", "scheduler.min_lr 1e-05 is above its peak 1e-06"},
      {"optimizer.groups=[{role:norm,rate:1e-6}]", "optimizer.groups[0].rate"}};
  for (const auto& [change, says] : mistakes) {
    CAPTURE(change);
    for (const std::string& command :
         {std::string("check g.yaml '"), std::string("g.yaml -q run.dir=run '")}) {
      const Outcome out = cli_in(scratch.path(), command + change + "'");
      CHECK_MESSAGE(out.status == 10, out.err);
      CHECK_MESSAGE(has(out.err, says), out.err);
    }
    CHECK_FALSE(fs::exists(scratch / "run"));
  }
}

TEST_CASE("groups may change when a run resumes, which is a change of the result") {
  const Scratch scratch("mtrain-groups-resume");
  scratch.write("g.yaml", grouped_recipe());
  done(scratch, "g.yaml -q run.dir=run train.steps=3");
  const Outcome out =
      done(scratch, "g.yaml -q run.dir=run 'optimizer.groups=[{role:norm,weight_decay:0.2}]'");
  CHECK_MESSAGE(has(out.err, "optimizer.groups"), out.err);
  const std::string shown = done(scratch, "runs show run").out;
  CHECK_MESSAGE(has(shown, "optimizer.groups"), shown);
}

TEST_CASE("the recipe quickstart_classes learns classes, with the rates of depth and of its head") {
  const Scratch scratch("mtrain-quickstart-classes");
  const char* const words[] = {"bad", "good", "poor", "fine", "dull", "nice", "awful", "great"};
  std::string lines;
  for (int i = 0; i < 240; ++i)
    lines += Json{{"text", std::string("this film is ") + words[(i * 5 + i / 8) % 8]},
                  {"label", (i * 5 + i / 8) % 2}}
                 .dump() +
             "\n";
  scratch.write("classes.jsonl", lines);
  const std::string said =
      done(scratch,
           "quickstart_classes run.dir=run dataset.path=classes.jsonl mixed_precision=fp32 "
           "run.threads=1 train.steps=60 model.seq_length=32 model.layers=2 model.hidden_size=64 "
           "model.heads=2 model.kv_heads=2 model.ffn_hidden_size=128 optimizer.lr=1e-3 "
           "validation.interval=0")
          .out;
  CHECK_MESSAGE(has(said, "group  head: 1 parameter of 128, lr 0.001, weight decay 0.0"), said);
  CHECK_MESSAGE(has(said, "lr 0.00064 to 0.001, weight decay 0.0 or 0.01"), said);
  const std::vector<Json> steps = rows(scratch / "run", "accuracy");
  REQUIRE(steps.size() == 60);
  double late = 0;
  for (size_t i = 50; i < 60; ++i) late += steps[i].at("accuracy").get<double>() / 10;
  CHECK_MESSAGE(late > 0.9, late);
}
