// Settings that may be said as a share of another one, and settings that say the same in two ways.
#include "mtrain/config/share.h"

#include <doctest/doctest.h>

#include "has.h"
#include "mtrain/base/error.h"
#include "mtrain/config/fields.h"

using namespace mtrain;
using testing::has;

namespace {

struct SharedTrain {
  int64_t steps = 0;
  double epochs = 0;
  void bind(Fields& f) {
    f("steps", steps, "steps").min(0).required().alternative("epochs").renamed_from({"max_steps"});
    f("epochs", epochs, "epochs").min(0).alternative("steps");
  }
};

struct SharedScheduler {
  int64_t warmup = 7;
  double lr = 1;
  void bind(Fields& f) {
    f("warmup", warmup, "warmup").min(0).or_share_of("train.steps").renamed_from({"warm"});
    f("lr", lr, "rate");
  }
};

SchemaCatalog shared_catalog() {
  SchemaCatalog out;
  out.add_section(schema_of<SharedTrain>("train", "the loop"));
  out.add_section(schema_of<SharedScheduler>("scheduler", "the rate"));
  return out;
}

ConfigContainer loaded_shares(const std::string& text, const std::vector<std::string>& overrides,
                              Report& report) {
  ConfigRequest request;
  request.recipe = "r.yaml";
  request.text = text;
  int argument = 2;
  for (const auto& override : overrides) request.overrides.push_back({override, argument++});
  return ConfigContainer::load(request, shared_catalog(), report);
}

int64_t warmup(const std::string& text, const std::vector<std::string>& overrides = {}) {
  Report report;
  ConfigContainer config = loaded_shares(text, overrides, report);
  CHECK_MESSAGE(report.ok(), report.text());
  return read_config<SharedScheduler>(config.section("scheduler")).warmup;
}

std::string share_faults(const std::string& text, const std::vector<std::string>& overrides = {}) {
  Report report;
  loaded_shares(text, overrides, report);
  return report.text();
}

}  // namespace

TEST_CASE("a share is a part of the setting that the schema names") {
  CHECK(warmup("train: {steps: 1120}\nscheduler: {warmup: 5%}\n") == 56);
  CHECK(warmup("train: {steps: 1k}\nscheduler: {warmup: 2.5 %}\n") == 25);
  CHECK(warmup("train: {steps: 1000}\nscheduler: {warm: 0%}\n") == 0);
  CHECK(warmup("train: {max_steps: 30}\nscheduler: {warmup: 100%}\n", {"train.max_steps=40"}) ==
        40);
  CHECK(warmup("train: {steps: 1000}\nscheduler: {warmup: 60}\n",
               {"scheduler.warmup=1%", "train.steps=300"}) == 3);
  CHECK(warmup("train: {steps: 1000}\nscheduler: {warmup: 60}\n") == 60);
  CHECK(warmup("train: {steps: 10}\n") == 7);
}

TEST_CASE("shares that are none are faults at their place") {
  for (const char* bad : {"-1%", "101%"})
    CHECK(has(share_faults(std::string("train: {steps: 10}\nscheduler: {warmup: ") + bad + "}\n"),
              "r.yaml:2:21"));
  CHECK(has(share_faults("train: {steps: 10}\nscheduler: {warmup: many%}\n"), "scheduler.warmup"));
  CHECK(has(share_faults("train: {steps: 10}\nscheduler: {warmup: '5%'}\n"),
            "scheduler.warmup"));  // a quoted text is no number
  CHECK(has(share_faults("train: {steps: 10}\nscheduler: {lr: 5%}\n"),
            "scheduler.lr"));  // of nothing
  CHECK(has(share_faults("train: {steps: ten}\nscheduler: {warmup: 5%}\n"), "train.steps"));
}

TEST_CASE("a fraction where a share is possible: the help is the percentage") {
  auto help_of = [](const std::string& value) {
    const std::string text =
        share_faults("train: {steps: 10}\nscheduler: {warmup: 3}\n", {"scheduler.warmup=" + value});
    CHECK_MESSAGE(has(text, "wanted an integer"), text);
    const size_t help = text.find("help: ");
    return help == std::string::npos ? "" : text.substr(help, text.find('\n', help) - help);
  };
  CHECK(help_of("0.05") == "help: write 5% for a share of train.steps");
  CHECK(help_of("0.07") == "help: write 7% for a share of train.steps");  // 0.07 * 100 is not 7
  CHECK(help_of("1e-3") == "help: write 0.1% for a share of train.steps");
  CHECK(help_of("1.5") == "");
  CHECK(help_of("-0.5") == "");
  CHECK_FALSE(has(share_faults("train: {steps: 0.5}\n"), "share"));  // of nothing
}

TEST_CASE("the number is what the program reads, the share is what the resolved recipe says") {
  Report report;
  ConfigContainer config =
      loaded_shares("train: {steps: 200}\nscheduler: {warmup: 5%}\n", {}, report);
  CHECK(config.root().at("scheduler.warmup").as_int() == 10);
  CHECK(has(config.to_yaml(), "warmup: 5%"));
  ConfigContainer longer = loaded_shares(config.to_yaml(), {"train.steps=400"}, report);
  CHECK_MESSAGE(report.ok(), report.text());
  CHECK(longer.root().at("scheduler.warmup").as_int() == 20);
  CHECK(config.root().at("scheduler.warmup").expression() == "5%");
  CHECK(config.root().at("scheduler.warmup").loc().text() == "r.yaml:2:21");
}

TEST_CASE("of two settings that say the same one is there; the later one counts") {
  auto text = [](const std::string& recipe, const std::vector<std::string>& overrides = {}) {
    Report report;
    std::string out = loaded_shares(recipe, overrides, report).to_yaml();
    CHECK_MESSAGE(report.ok(), report.text());
    return out.substr(0, out.find("scheduler"));
  };
  CHECK(text("train: {steps: 5}\n") == "train:\n  steps: 5\n");
  CHECK(text("train: {epochs: 2}\n") == "train:\n  epochs: 2.0\n");
  CHECK(text("train: {steps: 5}\n", {"train.epochs=1.5"}) == "train:\n  epochs: 1.5\n");
  CHECK(text("train: {epochs: 2}\n", {"train.steps=0"}) == "train:\n  steps: 0\n");
  CHECK(text("train: {steps: 5}\n", {"train.epochs=1.5", "train.steps=7"}) ==
        "train:\n  steps: 7\n");  // arguments in their order
  CHECK(text("train: {steps: 5}\n", {"train.steps=7", "train.epochs=1.5"}) ==
        "train:\n  epochs: 1.5\n");
  CHECK(has(share_faults("train: {epochs: 2, steps: 3}\n"), "error[conflict] train.epochs"));
  CHECK(has(share_faults("scheduler: {lr: 1}\n"),
            "is required (integer >= 0) unless train.epochs is set"));
  Report report;
  ConfigContainer config = loaded_shares("train: {epochs: 2}\n", {}, report);
  CHECK(read_config<SharedTrain>(config.section("train")).epochs == 2);
  CHECK(read_config<SharedTrain>(config.section("train")).steps == 0);
}

TEST_CASE("an expression cannot refer to a setting that its alternative replaces") {
  const char* both = "train: {steps: 20}\nscheduler: {warmup: '${= ${train.steps} // 4}'}\n";
  CHECK(warmup(both) == 5);
  std::string fault = share_faults(both, {"train.epochs=2"});
  CHECK(has(fault, "error[interpolation] scheduler.warmup"));
  CHECK(has(fault, "train.steps has no value in this run: train.epochs replaces it (command line"));
  CHECK(has(fault, "a share such as 25%"));
  CHECK(has(share_faults(both, {"train.epochs=2", "scheduler.warmup=${train.max_steps}"}),
            "train.steps has no value"));
  // The later of the two counts; the other one may be referred to by a default only.
  CHECK(warmup(both, {"train.epochs=2", "train.steps=40"}) == 10);
  CHECK(warmup(both, {"train.epochs=2", "train.max_steps=40"}) == 10);
  CHECK(
      has(share_faults(both, {"train.epochs=2", "train.steps=40", "scheduler.lr=${train.epochs}"}),
          "train.epochs has no value in this run: train.steps replaces it"));
  CHECK(warmup("train: {steps: 20}\n",
               {"train.epochs=2", "scheduler.warmup=${oc.select:train.steps,3}"}) == 3);
  CHECK(warmup("train: {epochs: 4}\nscheduler: {warmup: '${train.epochs}'}\n") == 4);
}

TEST_CASE("what is settled takes its alternative's place, and shares of it follow") {
  Report report;
  ConfigContainer config =
      loaded_shares("train: {epochs: 2}\nscheduler: {warmup: 10%}\n", {}, report);
  CHECK(read_config<SharedScheduler>(config.section("scheduler")).warmup == 0);
  config.resolve("train.steps", Node::integer(500), "train.epochs");
  CHECK(config.root().find("train.epochs") == nullptr);
  CHECK(read_config<SharedTrain>(config.section("train")).steps == 500);
  CHECK(read_config<SharedScheduler>(config.section("scheduler")).warmup == 50);
  Report again;
  ConfigContainer same = loaded_shares(config.to_yaml(), {}, again);
  CHECK(again.ok());
  CHECK(same.root().same_value(config.root()));
}

TEST_CASE("settings that an absent file may have are not reported as missing") {
  const std::string fault = share_faults("defaults: [nothing_here]\n");
  CHECK(has(fault, "there is no config nothing_here"));
  CHECK_FALSE(has(fault, "error[missing]"));
  CHECK_FALSE(has(fault, "error[empty]"));
  CHECK(has(share_faults(""), "error[empty]"));
}
