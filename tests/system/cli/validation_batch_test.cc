// validation.micro_batch_size and validation.global_batch_size: evaluation in batches of its own.
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

const Words kBase = {"train.steps=4", "checkpoint.interval=0", "validation.interval=2",
                     "mixed_precision.dtype=fp32"};

/// The rows of metrics.jsonl of a run with these settings.
std::vector<Json> trained(const Scratch& scratch, const std::string& name, const Words& words) {
  train(scratch.write("tiny.yaml", tiny_recipe()), scratch / name, with(kBase, words));
  return rows(scratch / name, "loss");
}

void check_same(const std::vector<Json>& a, const std::vector<Json>& b) {
  REQUIRE(a.size() == 4);
  REQUIRE(b.size() == 4);
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK(apart(a[i], b[i], "loss") < 1e-5);
    CHECK(apart(a[i], b[i], "val_loss") < 1e-5);
    CHECK(a[i].at("val_loss").is_number() == (i % 2 == 1));
  }
}

}  // namespace

TEST_CASE("the validation loss does not depend on the micro-batches of evaluation, in any layout") {
  Scratch scratch("mtrain-eval-micro");
  const std::vector<Json> one =
      trained(scratch, "one", {"validation.steps=2", "validation.global_batch_size=8"});
  // In training 4 samples a step, 2 at a time.
  check_same(trained(scratch, "large",
                     {"validation.steps=2", "validation.global_batch_size=8",
                      "validation.micro_batch_size=8"}),
             one);
  check_same(trained(scratch, "small",
                     {"validation.steps=2", "validation.global_batch_size=8",
                      "validation.micro_batch_size=1"}),
             one);
  check_same(trained(scratch, "as-training", {"validation.steps=4"}), one);
  for (const Words& layout : {Words{"dist.nproc=2", "dist.pp=2"},
                              {"dist.nproc=2", "dist.zero=3"},
                              {"dist.nproc=4", "dist.pp=2", "dist.tp=2"}})
    for (const char* micro : {"validation.micro_batch_size=4", "validation.micro_batch_size=1"})
      check_same(
          trained(scratch, "layout" + text(layout) + micro,
                  with({"validation.steps=2", "validation.global_batch_size=8", micro}, layout)),
          one);
}

TEST_CASE("the samples of an evaluation are those of its own batch, in eval, too") {
  Scratch scratch("mtrain-eval-global");
  const std::vector<Json> rows = trained(
      scratch, "run",
      {"validation.steps=3", "validation.global_batch_size=6", "validation.micro_batch_size=3"});
  Outcome eval = cli({"eval", "--from", (scratch / "run").string(), "--json"});
  REQUIRE_MESSAGE(eval.status == 0, eval.err);
  const Json seen = Json::parse(eval.out);
  CHECK(seen.at("tokens") == 3 * 6 * 32);
  CHECK(std::fabs(seen.at("loss").get<double>() / rows.back().at("val_loss").get<double>() - 1) <
        1e-5);
}

TEST_CASE("the memory plan counts larger micro-batches of evaluation") {
  Scratch scratch("mtrain-eval-memory");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  auto planned = [&](const Words& words) {
    Outcome plan =
        cli(with({"bench", recipe, "--steps", "1", "--warmup", "1", "--json", "--plain"}, words));
    REQUIRE_MESSAGE(plan.status == 0, plan.err);
    return Json::parse(plan.out)["planned_memory"]["bytes"].get<int64_t>();
  };
  const int64_t training = planned({});
  CHECK(planned({"validation.micro_batch_size=2"}) == training);
  CHECK(planned({"validation.micro_batch_size=512", "validation.global_batch_size=512"}) >
        2 * training);
  CHECK(planned({"validation.micro_batch_size=512", "validation.global_batch_size=512",
                 "validation.steps=0"}) == training);
  for (const char* layout : {"dist.pp=2", "dist.tp=2"})
    CHECK(cli({"check", recipe, "--memory", "dist.nproc=2", layout, "validation.micro_batch_size=8",
               "validation.global_batch_size=8"})
              .status == 0);
}
