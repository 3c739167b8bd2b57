// Experts and padding: with an sft dataset, model.seq_length is the length to which records are
// padded, and nothing that a run reports depends on it.
#include "training_run.h"

using namespace mtrain::testing;

namespace {

const Words kFigures = {"loss", "grad_norm", "moe_aux_loss", "moe_z_loss", "moe_max_load"};

std::string padded_records() {
  std::string out;
  for (int i = 0; i < 40; ++i) {
    std::string question, answer;
    for (int j = 0; j < 3 + i % 5; ++j) question += static_cast<char>('a' + (i * 3 + j) % 26);
    for (int j = 0; j < 2 + i % 7; ++j) answer += static_cast<char>('A' + (i + j * j) % 26);
    out += R"({"prompt": ")" + question + R"(", "completion": ")" + answer + "\"}\n";
  }
  return out;
}

std::string write_recipe(const Scratch& scratch) {
  const std::string data = scratch.write("records.jsonl", padded_records());
  return scratch.write(
      "moe.yaml",
      quant_recipe("type: moe, layers: 2, hidden_size: 32, heads: 4, kv_heads: 2, ffn_hidden_size: "
                   "48, seq_length: 24, moe: {experts: 4, top_k: 2, ffn_hidden_size: 32, router: "
                   "{balancing: [none], aux_loss_coeff: [0]}}",
                   "tokenizer: byte\n"
                   "train: {steps: 3, micro_batch_size: 4, global_batch_size: 8}\n"
                   "optimizer: {lr: 2e-3}\nvalidation: {interval: 3, steps: 2}\n",
                   "{type: sft, path: " + data + ", split: '80,20,0'}"));
}

/// The metrics of a run, which must have the figures of experts.
std::vector<Json> metrics(const std::string& recipe, const Scratch& scratch, const Words& words) {
  const auto folder = scratch / "run";
  train(recipe, folder, words);
  std::vector<Json> steps = rows(folder, "grad_norm");
  const std::vector<Json> validations = rows(folder, "val_loss");
  std::filesystem::remove_all(folder);
  REQUIRE(steps.size() == 3);
  REQUIRE(!validations.empty());
  REQUIRE(validations.back().at("val_loss").is_number());
  steps.back()["val_loss"] = validations.back().at("val_loss");
  return steps;
}

/// True when the values differ by more than rounding. Losses that are switched off are 0.
bool differ(const Json& a, const Json& b, const std::string& key, double bound) {
  const double x = a.at(key).get<double>(), y = b.at(key).get<double>();
  return !(std::fabs(x - y) <= bound * std::fabs(y));
}

void check_padding(const std::vector<Json>& got, const std::vector<Json>& want) {
  for (size_t i = 0; i < want.size(); ++i)
    for (const std::string& key : kFigures) {
      INFO("step ", i + 1, ", ", key, ": ", got[i].dump(), " for ", want[i].dump());
      CHECK_FALSE(differ(got[i], want[i], key, i == 0 ? 1e-6 : 5e-5));
    }
  CHECK_FALSE(differ(got.back(), want.back(), "val_loss", 5e-5));
}

struct Router {
  const char* name;
  Words words;
};

const Router kRouters[] = {
    {"no balancing", {}},
    {"aux_loss",
     {"model.moe.router.balancing=[aux_loss]", "model.moe.router.aux_loss_coeff=[0.1]"}},
    {"seq_aux_loss",
     {"model.moe.router.balancing=[seq_aux_loss]", "model.moe.router.aux_loss_coeff=[0.1]"}},
    {"global_aux_loss",
     {"model.moe.router.balancing=[global_aux_loss]", "model.moe.router.aux_loss_coeff=[0.1]"}},
    {"z_loss", {"model.moe.router.z_loss_coeff=0.1"}},
    {"bias",
     {"model.moe.router.score=sigmoid", "model.moe.router.bias=true",
      "model.moe.router.bias_update_rate=0.5"}},
    {"capacity, probs", {"model.moe.capacity_factor=0.8"}},
    {"capacity, position", {"model.moe.capacity_factor=0.8", "model.moe.drop_policy=position"}},
};

}  // namespace

TEST_CASE("routing does not depend on padding") {
  Scratch scratch("mtrain-expert-padding");
  const std::string recipe = write_recipe(scratch);
  for (const Router& router : kRouters) {
    INFO(router.name);
    const std::vector<Json> want = metrics(recipe, scratch, router.words);
    for (const char* length : {"model.seq_length=48", "model.seq_length=96"}) {
      INFO(length);
      check_padding(metrics(recipe, scratch, with(router.words, {length})), want);
    }
  }
}

TEST_CASE("routing does not depend on padding in any layout") {
  Scratch scratch("mtrain-expert-padding-ranks");
  const std::string recipe = write_recipe(scratch);
  const Words losses = {"model.moe.router.balancing=[aux_loss,seq_aux_loss,global_aux_loss]",
                        "model.moe.router.aux_loss_coeff=[0.1,0.1,0.1]",
                        "model.moe.router.z_loss_coeff=0.1",
                        "model.moe.router.score=sigmoid",
                        "model.moe.router.bias=true",
                        "model.moe.router.bias_update_rate=0.5",
                        "model.moe.capacity_factor=0.8"};
  const std::vector<Json> want = metrics(recipe, scratch, losses);
  for (const Words& layout : std::vector<Words>{
           {"dist.nproc=2", "dist.tp=2", "dist.sp=true"},
           {"dist.nproc=2", "dist.ep=2", "train.micro_batch_size=4"},
           {"dist.nproc=2", "dist.cp=2"},
           {"dist.nproc=2", "dist.cp=2", "dist.cp_comm=[a2a]"},
           {"dist.nproc=2", "dist.pp=2"},
           {"dist.nproc=2", "dist.etp=2"},
           {"dist.nproc=4", "dist.tp=2", "dist.sp=true", "dist.ep=2", "dist.etp=2"},
           {"model.recompute=full"},
           {"model.recompute=selective", "model.recompute_modules=[moe]"},
       }) {
    const Words words = with(with(losses, {"model.seq_length=96"}), layout);
    std::string now = text(words);
    CAPTURE(now);
    check_padding(metrics(recipe, scratch, words), want);
  }
}
