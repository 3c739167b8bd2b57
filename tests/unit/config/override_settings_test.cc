#include "mtrain/config/override_settings.h"

#include <doctest/doctest.h>

#include "mtrain/base/text.h"
#include "mtrain/config/container.h"
#include "mtrain/config/fields.h"
#include "mtrain/config/yaml_load.h"

using namespace mtrain;

namespace {

struct OverriddenTrain {
  int64_t steps = 0;
  double epochs = 0;
  void bind(Fields& f) {
    f("steps", steps, "steps").required().alternative("epochs").renamed_from({"max_steps"});
    f("epochs", epochs, "epochs").no_default().alternative("steps");
  }
};

struct OverriddenOptimizer {
  std::string type = "adam";
  double lr = 1;
  void bind(Fields& f) {
    f("type", type, "which").plugin("optimizer");
    f("lr", lr, "rate").renamed_from({"learning_rate"});
  }
};

struct Adam {
  double beta = 1;
  std::vector<int64_t> stops;
  void bind(Fields& f) {
    f("betas.first", beta, "decay").renamed_from({"adam_beta1", "momentum"});
    f("stops", stops, "steps").renamed_from({"halts"});
  }
};

struct OverriddenSgd {
  double momentum = 1;
  void bind(Fields& f) { f("momentum", momentum, "decay").renamed_from({"sgd_momentum"}); }
};

struct OverriddenScheduler {
  std::string type = "constant";
  void bind(Fields& f) { f("type", type, "which").one_of({"constant", "linear"}); }
};

SchemaCatalog overridden_catalog() {
  SchemaCatalog out;
  out.add_section(schema_of<OverriddenTrain>("train", "the loop"));
  out.add_section(schema_of<OverriddenOptimizer>("optimizer", "the update"));
  out.add_section(schema_of<OverriddenScheduler>("scheduler", "the rate"));
  out.add_component("optimizer", schema_of<Adam>("adam", "Adam"));
  out.add_component("optimizer", schema_of<OverriddenSgd>("sgd", "SGD"));
  return out;
}

/// The settings of `key=value`, or of ~key where there is no value.
std::string settings(const std::string& key, const char* value = nullptr,
                     const char* recipe = "{}") {
  const Node tree = parse_yaml(recipe), node = value ? parse_yaml(value) : Node();
  return join(settings_of(key, value ? &node : nullptr, tree, overridden_catalog()), " ");
}

}  // namespace

TEST_CASE("an override sets a setting, by whichever of its names") {
  CHECK(settings("optimizer.lr", "1") == "optimizer.lr");
  CHECK(settings("optimizer.learning_rate", "1") == "optimizer.lr");
  CHECK(settings("optimizer.learning_rate") == "optimizer.lr");
  CHECK(settings("optimizer.betas.first", "1") == "optimizer.betas.first");
  CHECK(settings("optimizer.adam_beta1", "1") == "optimizer.betas.first");
  CHECK(settings("optimizer.betas.adam_beta1", "1") == "optimizer.betas.first");
  CHECK(settings("optimizer.stops[0]", "1") == "optimizer.stops.0");
  CHECK(settings("optimizer.stops.0", "1") == "optimizer.stops.0");
  CHECK(settings("optimizer.lrr", "1") == "optimizer.lrr");
  CHECK(settings("nothing.at.all", "1") == "nothing.at.all");
  CHECK(settings("optimizer") == "optimizer");
  CHECK(settings("optimizer", "null") == "optimizer");
}

TEST_CASE("alternatives are one setting") {
  CHECK(settings("train.steps", "1") == settings("train.epochs", "1"));
  CHECK(settings("train.max_steps", "1") == settings("train.epochs", "1"));
  CHECK(settings("train.steps", "1").starts_with("train."));
}

TEST_CASE("a map sets its entries") {
  CHECK(settings("optimizer", "{learning_rate: 1, betas: {first: 2}, stops: [1, 2]}") ==
        "optimizer.betas.first optimizer.lr optimizer.stops");
  CHECK(settings("optimizer", "{lr: 1, learning_rate: 2}") == "optimizer.lr");
  CHECK(settings("optimizer", "{}").empty());
  CHECK(settings("optimizer.betas", "{first: 2}") == "optimizer.betas.first");
}

TEST_CASE("a section set to a name chooses an option and, where it is one, a component") {
  CHECK(settings("optimizer", "sgd") == "optimizer.type optimizer=");
  CHECK(settings("optimizer", "{type: sgd}") == "optimizer.type");
  CHECK(settings("optimizer", "tuned") == "optimizer=");
  CHECK(settings("scheduler", "linear") == "scheduler.type scheduler=");
  CHECK(settings("model/size@teacher", "big") == "model/size@teacher=");
}

TEST_CASE("the components of the recipe decide what a name means") {
  CHECK(settings("optimizer.momentum", "1", "optimizer: {type: sgd}") == "optimizer.momentum");
  CHECK(settings("optimizer.momentum", "1", "optimizer: {type: adam}") == "optimizer.betas.first");
  CHECK(settings("optimizer.sgd_momentum", "1", "optimizer: {type: adam}") ==
        "optimizer.momentum");  // of a component that an override may choose
}

TEST_CASE(
    "a patch comes after the files and before the command line, under any name of a setting") {
  struct Row {
    const char *settings, *patch;
    std::vector<std::string> overrides;
    const char *path, *value;
  };
  const Row rows[] = {
      {"{lr: 1}", "optimizer.learning_rate=2", {}, "optimizer.lr", "2.0"},
      {"{learning_rate: 1}", "optimizer.lr=2", {}, "optimizer.lr", "2.0"},
      {"{lr: 1}", "'optimizer={learning_rate: 2}'", {}, "optimizer.lr", "2.0"},
      {"{lr: 1}", "optimizer.learning_rate=2, optimizer.lr=3", {}, "optimizer.lr", "3.0"},
      {"{lr: 1}", "optimizer.lr=3, optimizer.learning_rate=2", {}, "optimizer.lr", "2.0"},
      {"{lr: 1}", "'~optimizer.learning_rate', '+optimizer.lr=2'", {}, "optimizer.lr", "2.0"},
      {"{}", "optimizer.learning_rate=2", {"optimizer.lr=3"}, "optimizer.lr", "3.0"},
      {"{}", "optimizer.lr=2", {"optimizer.learning_rate=3"}, "optimizer.lr", "3.0"},
      {"{}", "train.epochs=2", {}, "train.epochs", "2.0"},
      {"{}", "train.epochs=2", {"train.max_steps=3"}, "train.steps", "3"},
      // An item and an edit change the list that counts.
      {"{stops: [1, 2]}", "'optimizer.halts[0]=7'", {}, "optimizer.stops", "[7, 2]"},
      {"{halts: [1, 2]}", "'~optimizer.stops[0]'", {}, "optimizer.stops", "[2]"},
      {"{stops: [1, 2]}", "'optimizer.halts=append(3)'", {}, "optimizer.stops", "[1, 2, 3]"},
      {"{stops: [1, 2]}",
       "'optimizer.halts=[5, 6]'",
       {"optimizer.stops[0]=7"},
       "optimizer.stops",
       "[7, 6]"},
      {"{stops: [1, 2]}",
       "'optimizer.halts=[5, 6]', 'optimizer.stops=append(3)'",
       {},
       "optimizer.stops",
       "[5, 6, 3]"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.settings);
    CAPTURE(row.patch);
    ConfigRequest request;
    request.recipe = "r.yaml";
    request.text =
        cat("train: {steps: 9}\noptimizer: ", row.settings, "\npatch: [", row.patch, "]\n");
    for (const auto& override : row.overrides) request.overrides.push_back({override, 2});
    Report report;
    const SchemaCatalog all = overridden_catalog();
    const auto config = ConfigContainer::load(request, all, report);
    CHECK_MESSAGE(report.ok(), report.text());
    const Node* value = config.root().find(row.path);
    CHECK((value ? brief(*value) : "absent") == row.value);
  }
}
