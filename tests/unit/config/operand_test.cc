// A setting that an expression refers to has the value that its schema reads, in every notation.
#include "mtrain/config/operand.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "has.h"
#include "mtrain/base/text.h"
#include "mtrain/config/container.h"
#include "mtrain/config/fields.h"

using namespace mtrain;
using testing::has;

namespace {

struct OperandTrain {
  int64_t steps = 10;
  std::vector<int64_t> stops = {1, 2};
  void bind(Fields& f) {
    f("steps", steps, "steps").min(1).unit("steps").renamed_from({"max_steps"});
    f("stops", stops, "stops");
  }
};

struct Dist {
  double timeout = 10;
  bool overlap = false;
  void bind(Fields& f) {
    f("timeout", timeout, "timeout").min(0).unit("min");
    f("overlap", overlap, "overlap");
  }
};

struct OperandScheduler {
  int64_t warmup = 0, decay = 0;
  double min_lr = 0;
  void bind(Fields& f) {
    f("warmup", warmup, "warmup").or_share_of("train.steps");
    f("decay", decay, "decay");
    f("min_lr", min_lr, "the last rate");
  }
};

struct OperandModel {
  std::string type = "plain";
  void bind(Fields& f) { f("type", type, "which model").plugin("model"); }
};

struct OperandShape {
  int64_t width = 8, inner = 0, old = 1;
  std::vector<double> scales = {1, 2};
  double theta = 10;
  Node extra = Node::map();
  void bind(Fields& f) {
    f("width", width, "width").min(1);
    f("inner", inner, "inner width").derived("${= 4 * ${.width}}");
    f("scales", scales, "scales").size(2);
    f("rope.theta", theta, "base").renamed_from({"rope_theta", "rotary_base"});
    // The former name of one setting, and the name of another one.
    f("old", old, "a number").renamed_from({"width"});
    f("extra", extra, "anything");
  }
};

/// Where the results of the expressions go.
struct Out {
  std::string text;
  std::optional<double> number;
  void bind(Fields& f) {
    f("text", text, "a text");
    f("number", number, "a number");
  }
};

SchemaCatalog operand_catalog() {
  SchemaCatalog out;
  out.add_section(schema_of<OperandTrain>("train", "the loop"));
  out.add_section(schema_of<Dist>("dist", "the ranks"));
  out.add_section(schema_of<OperandScheduler>("scheduler", "the rate"));
  out.add_section(schema_of<OperandModel>("model", "the model"));
  out.add_component("model", schema_of<OperandShape>("plain", "a model"));
  out.add_section(schema_of<Out>("out", "results"));
  return out;
}

/// "path=value" as an override, "path:value" as `--set path value`, which is taken literally.
OverrideText override_of(const std::string& word, int argument) {
  const size_t end = word.find_first_of("=:");
  if (end == std::string::npos || word[end] == '=') return {word, argument};
  OverrideText out{word.substr(0, end), argument};
  out.raw = word.substr(end + 1);
  return out;
}

ConfigContainer loaded_operands(const std::string& recipe, const std::vector<std::string>& words,
                                Report& report) {
  ConfigRequest request;
  request.recipe = "r.yaml";
  request.text = recipe;
  int argument = 2;
  for (const auto& word : words) request.overrides.push_back(override_of(word, argument++));
  return ConfigContainer::load(request, operand_catalog(), report);
}

constexpr const char* kRecipe = "dist: {overlap: false}\n";

/// A setting of the recipe with these overrides, or the faults.
std::string value(const std::string& path, const std::vector<std::string>& words,
                  const std::string& recipe = kRecipe) {
  Report report;
  ConfigContainer config = loaded_operands(recipe, words, report);
  return report.ok() ? brief(config.root().at(path)) : report.text();
}

/// The value of an expression, as the whole value of a setting that accepts any number.
std::string computed_number(const std::string& setting, const std::string& expression) {
  return value("out.number", {setting, "out.number=${= " + expression + "}"});
}

std::string operand_faults(const std::vector<std::string>& words,
                           const std::string& recipe = kRecipe) {
  Report report;
  loaded_operands(recipe, words, report);
  return report.text();
}

}  // namespace

TEST_CASE("an expression sees the number that a notation means") {
  CHECK(computed_number("train.steps:100", "${train.steps} // 2") == "50.0");
  CHECK(computed_number("train.steps=2k", "${train.steps} // 2") == "1000.0");
  CHECK(computed_number("train.steps=2k_steps", "${train.steps} + 1") == "2001.0");
  CHECK(computed_number("train.steps:2k", "${train.steps} // 2") == "1000.0");
  CHECK(computed_number("train.steps=0x10", "${train.steps} // 2") == "8.0");
  CHECK(computed_number("train.steps=1e3", "${train.steps} // 2") == "500.0");
  CHECK(computed_number("model.width=1Ki", "4 * ${model.width}") == "4096.0");
  CHECK(computed_number("model.width=1Ki", "4 * model.width") == "4096.0");
  CHECK(computed_number("dist.timeout=30s", "2 * ${dist.timeout}") == "1.0");
  CHECK(computed_number("dist.timeout=2h", "${dist.timeout} / 100") == "1.2");
  CHECK(computed_number("dist.timeout:5e-3", "${dist.timeout} / 10") == "5e-04");
  CHECK(computed_number("dist.timeout=${oc.env:MT_NOT_SET_ANYWHERE,1e-3}", "${dist.timeout} * 2") ==
        "0.002");
  CHECK(computed_number("dist.overlap:true", "3 if ${dist.overlap} else 4") == "3.0");
  CHECK(computed_number("model.width=1k", "${oc.select:model.width,1} + 1") == "1001.0");
  CHECK(computed_number("model.width=1k", "1 + ${= 2 * ${model.width}}") == "2001.0");
}

TEST_CASE("a time in whole units counts as an integer") {
  CHECK(value("train.steps", {"dist.timeout=2h", "train.steps=${= 2 * ${dist.timeout}}"}) == "240");
  CHECK(value("train.steps", {"dist.timeout=30", "train.steps=${= 2 * ${dist.timeout}}"}) == "60");
}

TEST_CASE("an expression sees the values of a list and of its items") {
  CHECK(computed_number("train.stops=[1k,2k]", "sum(${train.stops})") == "3000.0");
  CHECK(computed_number("train.stops=[1k,2k]", "${train.stops[1]} // 2") == "1000.0");
  CHECK(computed_number("train.stops=[1k,2k]", "${train.stops.0} // 2") == "500.0");
  CHECK(computed_number("model.scales=[2k,0.5]", "max(${model.scales}) * ${model.scales[1]}") ==
        "1000.0");
}

TEST_CASE("an expression sees the value of a setting that refers to another one") {
  CHECK(value("scheduler.min_lr", {"train.steps=2k", "scheduler.decay=${train.steps}",
                                   "scheduler.min_lr=${= ${scheduler.decay} / 4}"}) == "500.0");
  // The first link is read later than the last.
  CHECK(value("dist.timeout", {},
              "dist: {timeout: \"${= ${scheduler.min_lr} * 2}\"}\n"
              "scheduler: {min_lr: \"${out.number}\"}\n"
              "out: {number: \"${oc.env:MT_NOT_SET_ANYWHERE,1k}\"}\n") == "2000.0");
  CHECK(value("model.inner", {"model.width=1Ki"}) == "4096");
  CHECK(value("model.inner", {"model.width:32"}) == "128");
  CHECK(computed_number("model.width=1k", "${model.inner} / 2") == "2000.0");
}

TEST_CASE("a variable of the environment is read by the schema of the setting that it fills") {
  REQUIRE(setenv("MT_OPERAND_TEST", "1.5k", 1) == 0);
  CHECK(computed_number("train.steps=${oc.env:MT_OPERAND_TEST}", "${train.steps} * 2") == "3000.0");
  unsetenv("MT_OPERAND_TEST");
}

TEST_CASE("outside of arithmetic a setting is as it was written") {
  CHECK(value("out.text", {"dist.timeout:5e-3", "out.text=t${dist.timeout}"}) == "t5e-3");
  CHECK(value("out.text", {"train.steps=2k", "out.text=s${train.steps}"}) == "s2k");
  CHECK(value("out.text", {"train.steps=2k", "out.text=s${= ${train.steps} + 1}"}) == "s2001");
  // The key inside of a path is text, too.
  CHECK(value("out.number", {"out.number=${= 1 + ${model.extra[${train.steps}]}}"},
              "train: {steps: 2k}\nmodel: {extra: {2k: 5}}\n") == "6.0");
}

TEST_CASE("a string setting is a text, whatever it looks like") {
  for (const char* word : {"out.text=8", "out.text:8", "out.text='8'"}) {
    CAPTURE(word);
    CHECK(computed_number(word, "3 if ${out.text} == '8' else 4") == "3.0");
  }
}

TEST_CASE("a value that its setting does not accept is reported once, at the setting") {
  struct Row {
    const char *word, *expression, *fault;
  };
  const Row rows[] = {
      {"train.steps=many", "${train.steps} // 2",
       "train.steps: wanted an integer, got the text many"},
      {"train.steps:many", "train.steps // 2", "train.steps: wanted an integer, got"},
      {"train.steps=0", "${train.steps} // 2", "train.steps: wanted integer >= 1, got 0"},
      {"train.steps=1.2345k", "${train.steps} // 2", "train.steps: wanted an integer, got"},
      {"train.steps=30s", "${train.steps} // 2", "train.steps: 30s is a time"},
      {"train.steps=${oc.env:MT_NOT_SET_ANYWHERE,fast}", "${train.steps} // 2",
       "train.steps: wanted an integer, got the text fast"},
      {"train.stops=[1,x]", "${train.stops[1]} + 1", "train.stops[1]: wanted an integer, got"},
      {"train.stops=[1,x]", "sum(${train.stops})", "train.stops[1]: wanted an integer, got"},
      {"model.width=wide", "${model.inner} + 1", "model.width: wanted an integer, got"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.word);
    CAPTURE(row.expression);
    // Both settings that use the value are faulty; neither has a fault of its own.
    const std::string text =
        operand_faults({row.word, cat("out.number=${= ", row.expression, "}"),
                        cat("scheduler.min_lr=${= 2 * (", row.expression, ")}")});
    CAPTURE(text);
    CHECK(has(text, row.fault));
    CHECK(has(text, "command line, argument 2"));
    CHECK_FALSE(has(text, "cannot compute"));
    CHECK(text.ends_with("1 error"));
  }
}

TEST_CASE("a share has no value in an expression") {
  const std::string text =
      operand_faults({"scheduler.warmup=5%", "out.number=${= 2 * ${scheduler.warmup}}"});
  CHECK_MESSAGE(has(text, "scheduler.warmup is 5%, a share of train.steps"), text);
  CHECK_MESSAGE(text.ends_with("1 error"), text);
  CHECK(computed_number("scheduler.warmup=5", "2 * ${scheduler.warmup}") == "10.0");
}

TEST_CASE("what has no schema is computed as it was written") {
  CHECK(value("out.number", {"out.number=${= 2 * ${model.extra.n}}"}, "model: {extra: {n: 3}}\n") ==
        "6.0");
  CHECK(has(operand_faults({"out.number=${= 2 * ${model.extra.n}}"}, "model: {extra: {n: 3k}}\n"),
            "cannot compute an integer * a text"));
}

TEST_CASE("a reference finds a setting under any of its names") {
  auto twice = [](const std::string& path, const std::string& recipe,
                  std::vector<std::string> words = {}) {
    words.push_back("out.number=${= 2 * ${" + path + "}}");
    return value("out.number", words, recipe);
  };
  CHECK(twice("train.steps", "train: {max_steps: 40}\n") == "80.0");
  CHECK(twice("train.max_steps", "train: {steps: 40}\n") == "80.0");
  CHECK(twice("train.max_steps", kRecipe) == "20.0");
  CHECK(twice("model.rope.theta", "model: {rope: {rotary_base: 2k}}\n") == "4000.0");
  CHECK(twice("model.rope.theta", "model: {rope_theta: 2k}\n") == "4000.0");
  CHECK(twice("model.rope_theta", "model: {rope: {theta: 2k}}\n") == "4000.0");
  // The value that counts is the one that was merged last.
  CHECK(twice("train.steps", "train: {steps: 40}\n", {"train.max_steps=2k"}) == "4000.0");
  CHECK(twice("train.steps", "train: {max_steps: 40}\n", {"train.steps=2k"}) == "4000.0");
  CHECK(value("out.text", {"train.max_steps=2k", "out.text=s${train.steps}"},
              "train: {steps: 40}\n") == "s2k");
  // A present name is never taken for a former one.
  CHECK(twice("model.width", "model: {old: 3, width: 5}\n") == "10.0");
  CHECK(twice("model.old", "model: {old: 3, width: 5}\n") == "6.0");
  CHECK(twice("model.old", "model: {width: 5}\n") == "2.0");

  const std::string text =
      operand_faults({"out.number=${= 2 * ${train.steps}}"}, "train: {max_steps: many}\n");
  CHECK_MESSAGE(has(text, "train.max_steps: wanted an integer, got the text many"), text);
  CHECK_MESSAGE(has(text, "\n1 error"), text);
}

TEST_CASE("a nested setting cannot be added under another name when it has a value") {
  CHECK(has(operand_faults({"+model.rope.rotary_base=3"}, "model: {rope: {theta: 5}}\n"),
            "cannot be added: it is 5 already, as model.rope.theta"));
  CHECK(value("model.rope.theta", {"~model.rope.theta"}, "model: {rope: {rotary_base: 5}}\n") ==
        "10.0");
}
