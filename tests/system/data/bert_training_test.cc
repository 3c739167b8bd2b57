// BERT on masked bytes, trained from the command line; and what refuses to be trained, or to be
// asked for text.
#include "../cli/training_run.h"
#include "data_files.h"
#include "mtrain/data/indexed_writer.h"

using namespace mtrain::testing;
using mtrain::fs::path;

namespace {

/// Documents of one letter each: only the context shows which one a masked byte is.
void write_text(const path& prefix) {
  mtrain::IndexedWriter writer(prefix, mtrain::DType::u16, {.overwrite = true});
  for (int d = 0; d < 60; ++d) {
    std::vector<int32_t> ids(190, 'a' + 7 * d % 26);
    ids.back() = 256;
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
}

const char* kModel =
    "type: bert, layers: 2, hidden_size: 48, heads: 4, ffn_hidden_size: 96, seq_length: 48, "
    "max_positions: 48, dropout: 0.1";

std::string recipe(const std::string& model, const std::string& dataset, int steps) {
  return quant_recipe(model,
                      "tokenizer: {type: byte, extra_ids: 1}\n"
                      "train: {steps: " +
                          std::to_string(steps) +
                          ", micro_batch_size: 4, global_batch_size: 8}\n"
                          "optimizer: {type: adamw, lr: 3e-3, weight_decay: 0.01}\n"
                          "scheduler: {type: constant, warmup_steps: 5}\n"
                          "checkpoint: {interval: 50}\n"
                          "validation: {interval: 50, steps: 2}\n",
                      dataset);
}

const char* kMasked =
    "{type: bert, path: x, split: '90,10', order: open, mask_token: <extra_id_0>, start_token: '', "
    "end_token: ''}";

std::vector<double> losses(const path& folder) {
  std::vector<double> out;
  for (const Json& row : rows(folder, "grad_norm"))
    if (!row.at("loss").is_null()) out.push_back(row.at("loss").get<double>());
  return out;
}

}  // namespace

TEST_CASE("a BERT learns to fill in bytes, and goes on where it stopped, over one rank or two") {
  Scratch scratch("mtrain-bert");
  write_text(scratch / "x");
  const std::string file = scratch.write("bert.yaml", recipe(kModel, kMasked, 200));
  train(file, scratch / "whole", {});
  std::vector<double> whole = losses(scratch / "whole");
  REQUIRE(whole.size() == 200);
  CHECK(whole.front() > 5);  // ln 258 = 5.55
  MESSAGE("first loss " << whole.front() << ", last " << whole.back());
  CHECK(whole.back() < 1);  // ln 26 = 3.26 is what there is to know without what stands around
  train(file, scratch / "parts", {"train.steps=12"});
  train(file, scratch / "parts", {"train.steps=18"});
  std::vector<double> parts = losses(scratch / "parts");
  REQUIRE(parts.size() == 18);
  for (size_t i = 0; i < parts.size(); ++i) CHECK(parts[i] == whole[i]);
  train(file, scratch / "ranks", {"train.steps=12", "dist.nproc=2"});
  std::vector<double> ranks = losses(scratch / "ranks");
  REQUIRE(ranks.size() == 12);
  for (size_t i = 0; i < ranks.size(); ++i) CHECK(std::fabs(ranks[i] / whole[i] - 1) < 1e-5);

  Outcome eval = cli({"eval", "--from", (scratch / "whole").string()});
  CHECK_MESSAGE(eval.status == 0, eval.err);
  Outcome generate =
      cli({"generate", "--from", (scratch / "whole").string(), "--prompt", "In the"});
  CHECK(generate.status != 0);
  CHECK_MESSAGE(
      generate.err.find("the objective of model.type=bert is 'masked token'") != std::string::npos,
      generate.err);
}

TEST_CASE(
    "a model and a dataset that are not made for each other are refused before any data is read") {
  Scratch scratch("mtrain-objectives");
  const std::string gpt2 = "type: gpt2, layers: 2, hidden_size: 48, heads: 4, seq_length: 48";
  const std::string next = "{type: gpt, path: nowhere}";
  auto check = [&](const std::string& model, const std::string& dataset) {
    return cli({"check", scratch.write("r.yaml", recipe(model, dataset, 1))});
  };
  for (const auto& [model, dataset] :
       {std::pair(gpt2, std::string(kMasked)), std::pair(std::string(kModel), next)}) {
    Outcome out = check(model, dataset);
    CHECK(out.status != 0);
    CHECK_MESSAGE((out.out + out.err).find("same-objective") != std::string::npos, out.out,
                  out.err);
  }
  Outcome mock = check(kModel, "mock");
  CHECK_MESSAGE(mock.status == 0, mock.out, mock.err);
  Outcome pooler = check(std::string(kModel) + ", pooler: true", "mock");
  CHECK(pooler.status != 0);
  Outcome train = cli({scratch.write("r.yaml", recipe(kModel, next, 1)), "-q",
                       "run.dir=" + (scratch / "run").string()});
  CHECK(train.status != 0);
  CHECK_MESSAGE(train.err.find("same-objective") != std::string::npos, train.err);
  CHECK_MESSAGE(train.err.find("no indexed dataset") == std::string::npos, train.err);
}

TEST_CASE("what a BERT cannot be is refused by name") {
  Scratch scratch("mtrain-bert-settings");
  struct Fault {
    const char *settings, *says;
  };
  for (const Fault& fault :
       {Fault{"model.max_positions=47", "the position table has 47 rows for samples of 48 tokens"},
        {"model.heads=5", "heads"},
        {"model.recompute_modules=[layernorm]", "layernorm"}}) {
    Words words = {scratch.write("r.yaml", recipe(kModel, "mock", 1)), "-q",
                   "run.dir=" + (scratch / "run").string(), fault.settings};
    if (std::string(fault.says) == "layernorm") words.push_back("model.recompute=selective");
    Outcome out = cli(words);
    CHECK(out.status != 0);
    CHECK_MESSAGE(out.err.find(fault.says) != std::string::npos, out.err);
  }
}
