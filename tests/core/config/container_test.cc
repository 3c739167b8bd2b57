#include "mtrain/config/container.h"

#include <doctest/doctest.h>

#include "mtrain/base/error.h"
#include "mtrain/config/yaml_load.h"

using namespace mtrain;

namespace {

struct OptimizerCore {
  std::string type = "adamw";
  bool overlap = false;
  void bind(Fields& f) {
    f("type", type, "which optimizer").plugin("optimizer");
    f("overlap", overlap, "overlap the reduction with the backward pass");
  }
};

struct AdamW {
  double lr = 3e-4;
  std::vector<double> betas = {0.9, 0.95};
  std::string key;
  void bind(Fields& f) {
    f("lr", lr, "peak learning rate").exclusive_min(0).example("3e-4").renamed_from({"learning_rate"});
    f("betas", betas, "decay of the moments").size(2);
    f("key", key, "a secret").secret();
  }
};

struct Sgd {
  double lr = 0.1, momentum = 0;
  void bind(Fields& f) {
    f("lr", lr, "learning rate").exclusive_min(0);
    f("momentum", momentum, "momentum").min(0).exclusive_max(1);
  }
};

struct Train {
  int64_t steps = 0;
  int micro_batch_size = 1;
  void bind(Fields& f) {
    f("steps", steps, "optimizer steps").min(1).required().example("1000");
    f("micro_batch_size", micro_batch_size, "sequences per micro-step").min(1);
  }
};

SchemaCatalog catalog() {
  SchemaCatalog out;
  out.add_section(schema_of<Train>("train", "the loop"));
  out.add_section(schema_of<OptimizerCore>("optimizer", "the optimizer"));
  out.add_component("optimizer", schema_of<AdamW>("adamw", "AdamW"));
  out.add_component("optimizer", schema_of<Sgd>("sgd", "SGD"));
  out.explain_kind("optimizer", "searched: /opt/plugins");
  return out;
}

ConfigRequest request(std::string text, std::vector<std::string> overrides = {}) {
  ConfigRequest out;
  out.recipe = "r.yaml";
  out.text = std::move(text);
  int argument = 2;
  for (auto& override : overrides) out.overrides.push_back({std::move(override), argument++});
  return out;
}

std::string faults(std::string text, std::vector<std::string> overrides = {}) {
  Report report;
  ConfigContainer::load(request(std::move(text), std::move(overrides)), catalog(), report);
  return report.text();
}

}  // namespace

TEST_CASE("a recipe is filled with defaults and handed out by owner") {
  auto config = ConfigContainer::load_or_throw(
      request("train: {steps: 1e3}\noptimizer:\n  lr: 2e-5\n  overlap: true\n"), catalog());
  CHECK(read_config<Train>(config.section("train")).steps == 1000);
  CHECK(config.type_of("optimizer") == "adamw");
  CHECK(read_config<OptimizerCore>(config.section("optimizer")).overlap);
  AdamW adamw = read_config<AdamW>(config.component("optimizer"));
  CHECK(adamw.lr == 2e-5);
  CHECK(adamw.betas == std::vector<double>{0.9, 0.95});
  CHECK(config.root().at("optimizer.lr").as_double() == 2e-5);
  CHECK(config.to_yaml() ==
        "train:\n  steps: 1000\n  micro_batch_size: 1\noptimizer:\n  type: adamw\n  overlap: true\n  lr: "
        "2e-05\n  betas: [0.9, 0.95]\n");
}

TEST_CASE("the resolved configuration loads again to itself") {
  auto first = ConfigContainer::load_or_throw(
      request("train: {steps: 7}\noptimizer: sgd\n", {"optimizer.momentum=.5"}), catalog());
  auto second = ConfigContainer::load_or_throw(request(first.to_yaml()), catalog());
  CHECK(second.to_yaml() == first.to_yaml());
  CHECK(second.root().same_value(first.root()));
}

TEST_CASE("all faults come in one report") {
  std::string text =
      faults("train: {micro_batch_size: 0}\noptimizr: {lr: 1}\noptimizer: {lr: -1, betas: [1]}\n",
             {"optimizer.lrr=3", "train.micro_batch_sise=3"});
  for (const char* part :
       {"error[out-of-range] train.micro_batch_size: wanted integer >= 1, got 0", "r.yaml:1:27",
        "error[unknown-key] optimizr.lr", "did you mean optimizer.lr", "error[list-size]",
        "optimizer.lr: wanted number > 0", "command line, argument 2: optimizer.lrr=3",
        "error[missing] train.steps", "train.steps=1000", "7 errors"})
    CHECK_MESSAGE(text.find(part) != std::string::npos, part);
}

TEST_CASE("why tells who set a value") {
  auto config = ConfigContainer::load_or_throw(
      request("train: {steps: 7}\n", {"train.steps=8", "train.steps=9"}), catalog());
  CHECK(config.why("train.steps") ==
        "train.steps = 9   command line, argument 3\n  shadowed 8   command line, argument 2\n  shadowed 7   "
        "r.yaml:1:16\n");
  CHECK(config.why("optimizer.lr") == "optimizer.lr = 3e-04   default of optimizer/adamw\n");
}
