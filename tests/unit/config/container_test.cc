#include "mtrain/config/container.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/provenance.h"
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
    f("lr", lr, "peak learning rate")
        .exclusive_min(0)
        .example("3e-4")
        .renamed_from({"learning_rate"});
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

struct ModelCore {
  std::string type;
  void bind(Fields& f) { f("type", type, "which model").plugin("model"); }
};

struct Shape {
  int64_t depth = 3, groups = 0;
  void bind(Fields& f) {
    f("depth", depth, "blocks").min(1).fact(Fact::layers);
    f("groups", groups, "of heads").min(0).fact(Fact::kv_heads);
  }
};

struct Note {
  std::string text;
  void bind(Fields& f) { f("text", text, "a text"); }
};

constexpr const char* kSettledRecipe = "train: {steps: 1}\noptimizer: {overlap: false}\n";

SchemaCatalog catalog() {
  SchemaCatalog out;
  out.add_section(schema_of<Train>("train", "the loop"));
  out.add_section(schema_of<OptimizerCore>("optimizer", "the optimizer"));
  out.add_component("optimizer", schema_of<AdamW>("adamw", "AdamW"));
  out.add_component("optimizer", schema_of<Sgd>("sgd", "SGD"));
  out.explain_kind("optimizer", "searched: /opt/plugins");
  return out;
}

SchemaCatalog with_note() {
  SchemaCatalog out = catalog();
  out.add_section(schema_of<Note>("note", "a remark"));
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

TEST_CASE("a fact is found by whichever setting publishes it") {
  SchemaCatalog known = catalog();
  known.add_section(schema_of<ModelCore>("model", "the model"));
  known.add_component("model", schema_of<Shape>("plain", "a model"));
  auto config = ConfigContainer::load_or_throw(
      request("train: {steps: 1}\nmodel: {type: plain, groups: 2}\n"), known);
  CHECK(config.setting_of(Fact::layers) == "model.depth");
  CHECK(config.fact(Fact::layers) == 3);
  CHECK(config.fact(Fact::kv_heads) == 2);
  CHECK(config.setting_of(Fact::experts).empty());
  CHECK_FALSE(config.fact(Fact::experts).has_value());
  Report report;
  auto faulty = ConfigContainer::load(
      request("train: {steps: 1}\nmodel: {type: plain, depth: many}\n"), known, report);
  CHECK(report.errors() == 1);
  CHECK_FALSE(faulty.fact(Fact::layers).has_value());
}

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
        "train:\n  steps: 1000\n  micro_batch_size: 1\noptimizer:\n  type: adamw\n  overlap: "
        "true\n  lr: "
        "2e-05\n  betas: [0.9, 0.95]\n");
}

TEST_CASE("the resolved configuration loads again to itself") {
  auto first = ConfigContainer::load_or_throw(
      request("train: {steps: 7}\noptimizer: sgd\n", {"optimizer.momentum=.5"}), catalog());
  auto second = ConfigContainer::load_or_throw(request(first.to_yaml()), catalog());
  CHECK(second.to_yaml() == first.to_yaml());
  CHECK(second.root().same_value(first.root()));
}

TEST_CASE(
    "another component in a resolved recipe drops what the old one alone has; elsewhere that is a "
    "fault") {
  const std::string saved =
      ConfigContainer::load_or_throw(
          request("train: {steps: 7}\noptimizer: {type: adamw, lr: 1e-2}\n"), catalog())
          .to_yaml();
  auto load = [&](bool resolved, std::vector<std::string> overrides) {
    ConfigRequest again = request(saved, std::move(overrides));
    again.resolved = resolved;
    Report report;
    const ConfigContainer config = ConfigContainer::load(again, catalog(), report);
    return report.ok() ? config.to_yaml() : report.text();
  };
  for (const char* choice : {"optimizer.type=sgd", "optimizer=sgd"}) {
    CHECK(load(true, {choice}) ==
          "train:\n  steps: 7\n  micro_batch_size: 1\noptimizer:\n  type: sgd\n  overlap: false\n  "
          "lr: 0.01\n  momentum: 0.0\n");
    const std::string fault = load(false, {choice});
    CHECK_MESSAGE(fault.find("optimizer.betas: no such setting") != std::string::npos, fault);
    CHECK_MESSAGE(
        fault.find("help: optimizer.type is sgd, which does not have this setting: remove it (on "
                   "the command line: ~optimizer.betas), or choose adamw, which has it") !=
            std::string::npos,
        fault);
  }
  const std::string said =
      load(true,
           {"optimizer=sgd", "optimizer.betas=[0.5, 0.5]"});  // the command line is checked as ever
  CHECK_MESSAGE(said.find("optimizer.betas: no such setting") != std::string::npos, said);
  CHECK_MESSAGE(said.find("command line, argument 3") != std::string::npos, said);
  CHECK(load(true, {"optimizer=adamw"}) == saved);
}

TEST_CASE("a map that names another component replaces the component and keeps the section") {
  auto optimizer = [](const std::string& settings, std::vector<std::string> overrides) {
    const auto config = ConfigContainer::load_or_throw(
        request(cat("train: {steps: 7}\noptimizer: ", settings, "\n"), std::move(overrides)),
        catalog());
    return brief(config.root().at("optimizer"), 200);
  };
  const std::string adamw = "{overlap: true, learning_rate: 1e-2, betas: [0.5, 0.5]}";
  CHECK(optimizer(adamw, {"optimizer={type: sgd}"}) ==
        "{type: sgd, overlap: true, lr: 0.1, momentum: 0.0}");
  CHECK(optimizer(adamw, {"optimizer={type: sgd, lr: 2}", "optimizer.momentum=0.5"}) ==
        "{type: sgd, overlap: true, lr: 2.0, momentum: 0.5}");
  CHECK(optimizer(adamw, {"optimizer={type: adamw, lr: 2}"}) ==
        optimizer(adamw, {"optimizer={lr: 2}"}));
  CHECK(optimizer(adamw, {"optimizer={lr: 2}"}).find("betas: [0.5, 0.5]") != std::string::npos);
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

TEST_CASE("an override counts whichever of a setting's names it says") {
  struct Row {
    const char *text, *override;
    double lr;
    const char* shadowed;
  };
  for (const Row& row :
       {Row{"optimizer: {lr: 1}\n", "++optimizer.learning_rate=2", 2, "1   r.yaml:2:17"},
        Row{"optimizer: {learning_rate: 1}\n", "optimizer.lr=2", 2, "1   r.yaml:2:28"}}) {
    CAPTURE(row.text);
    Report report;
    auto config = ConfigContainer::load(
        request(cat("train: {steps: 1}\n", row.text), {row.override}), catalog(), report);
    CHECK_MESSAGE(report.ok(), report.text());
    CHECK(report.warnings() == 1);
    CHECK(config.root().at("optimizer.lr").as_double() == row.lr);
    std::string shadowed = cat("shadowed ", row.shadowed);
    CHECK_MESSAGE(why_text(config, "optimizer.lr").find(shadowed) != std::string::npos,
                  why_text(config, "optimizer.lr"));
  }
  CHECK(
      faults("train: {steps: 1}\noptimizer: {lr: 1, learning_rate: 2}\n").find("error[conflict]") !=
      std::string::npos);
}

TEST_CASE("why names the source of a value") {
  auto config = ConfigContainer::load_or_throw(
      request("train: {steps: 7}\n", {"train.steps=8", "train.steps=9"}), catalog());
  CHECK(why_text(config, "train.steps") ==
        "train.steps = 9   command line, argument 3\n  shadowed 8   command line, argument 2\n  "
        "shadowed 7   "
        "r.yaml:1:16\n");
  CHECK(why_text(config, "optimizer.lr") == "optimizer.lr = 3e-04   default of optimizer/adamw\n");
}

TEST_CASE(
    "a value that is settled for one run is read, saved and reported like one that was written") {
  ConfigContainer config =
      ConfigContainer::load_or_throw({.recipe = "r.yaml", .text = kSettledRecipe}, catalog());
  auto source = std::make_shared<Source>(SourceKind::built_in, "settled: by the machine", "");
  config.resolve("optimizer.overlap", Node::boolean(true).set_location({source, 0, 0}));
  CHECK(config.section("optimizer").at("overlap").as_bool());
  CHECK(config.root().at("optimizer.overlap").as_bool());
  CHECK(config.to_yaml().find("overlap: true") != std::string::npos);
  CHECK(config.raw() == kSettledRecipe);
  std::string why = why_text(config, "optimizer.overlap");
  CHECK_MESSAGE(
      why.find(
          "optimizer.overlap = true   settled: by the machine\n  shadowed false   r.yaml:2:") == 0,
      why);
  CHECK_THROWS_AS(config.resolve("optimizer.none", Node::boolean(true)), Error);
  CHECK_THROWS_AS(config.resolve("overlap", Node::boolean(true)), Error);
}

TEST_CASE("an unknown component is named with the nearest, the list and where it was looked for") {
  std::string text = faults("train: {steps: 1}\noptimizer: {type: adamv, lr: 1, whatever: 2}\n");
  for (const char* part :
       {"error[unknown-plugin] optimizer.type: there is no optimizer 'adamv'", "r.yaml:2:19",
        "there are: adamw, sgd", "searched: /opt/plugins", "did you mean adamw?", "1 error"})
    CHECK_MESSAGE(text.find(part) != std::string::npos, part);
  CHECK(faults("train: {steps: 1}\noptimizer: adamv\n").find("did you mean adamw?") !=
        std::string::npos);
  CHECK(faults("train: {steps: 1}\noptimizer: [adamw]\n").find("wanted a map of settings") !=
        std::string::npos);
  CHECK(
      faults("train: {steps: 1}\noptimizer: {type: ???}\n").find("error[missing] optimizer.type") !=
      std::string::npos);
}

TEST_CASE("the short form of a section works in recipes and on the command line") {
  auto type_after = [](std::string text, std::vector<std::string> overrides) {
    return ConfigContainer::load_or_throw(request(std::move(text), std::move(overrides)), catalog())
        .type_of("optimizer");
  };
  CHECK(type_after("train: {steps: 1}\n", {}) == "adamw");
  CHECK(type_after("train: {steps: 1}\noptimizer: sgd\n", {}) == "sgd");
  CHECK(type_after("train: {steps: 1}\n", {"optimizer=sgd"}) == "sgd");
  CHECK(type_after("train: {steps: 1}\noptimizer: {lr: 0.5}\n", {"optimizer=sgd"}) == "sgd");
  CHECK(type_after("train: {steps: 1}\noptimizer: sgd\n", {"optimizer.type=adamw"}) == "adamw");
  CHECK(type_after("train: {steps: 1}\noptimizer: sgd\n", {"~optimizer"}) == "adamw");
}

TEST_CASE("interpolations reach defaults, and their faults are said once") {
  auto config = ConfigContainer::load_or_throw(
      request("train: {steps: 3}\noptimizer: {type: sgd, momentum: \"${= ${.lr} / 2}\"}\n",
              {"train.steps=${= 100 * train.micro_batch_size}"}),
      catalog());
  CHECK(config.root().at("train.steps").as_int() == 100);
  CHECK(config.root().at("optimizer.momentum").as_double() == 0.05);
  CHECK(why_text(config, "train.steps").find("computed ${= 100 * train.micro_batch_size}") !=
        std::string::npos);
  std::string text = faults("train: {steps: \"${train.step}\"}\n");
  CHECK(text.find("there is no train.step") != std::string::npos);
  CHECK(text.ends_with("1 error"));
  CHECK(faults("train: {steps: 2}\noptimizer: {lr: \"${oc.env:MT_NOT_SET_ANYWHERE,1e-3}\"}\n")
            .empty());
  CHECK(faults("train: {steps: 2}\noptimizer: {lr: \"${oc.env:MT_NOT_SET_ANYWHERE,fast}\"}\n")
            .find("computed from") != std::string::npos);
}

TEST_CASE(
    "a number from a variable that is named like a secret is saved as it is, a text as its "
    "expression") {
  ::setenv("MT_TEST_SORT_KEY", "12", 1);
  auto config = ConfigContainer::load_or_throw(
      request("train: {steps: \"${oc.env:MT_TEST_SORT_KEY}\"}\noptimizer: {type: sgd, momentum: "
              "\"0.${oc.env:MT_TEST_SORT_KEY}\"}\n"
              "note: {text: \"${oc.env:MT_TEST_SORT_KEY}\"}\n"),
      with_note());
  ::unsetenv("MT_TEST_SORT_KEY");
  const std::string saved = config.to_yaml();
  CHECK(saved.find("steps: 12\n") != std::string::npos);
  CHECK(saved.find("momentum: 0.12\n") != std::string::npos);
  CHECK(saved.find("${oc.env:MT_TEST_SORT_KEY}", saved.find("text:")) != std::string::npos);
}

TEST_CASE("a literal interpolation and a secret survive or vanish as they should when saved") {
  auto config = ConfigContainer::load_or_throw(
      request("train: {steps: 1}\noptimizer: {key: '\\${x}'}\n"), catalog());
  CHECK(read_config<AdamW>(config.component("optimizer")).key == "${x}");
  CHECK(config.to_yaml().find("key") == std::string::npos);
  CHECK(why_text(config, "optimizer.key").find("${x}") == std::string::npos);
}

TEST_CASE("faults of YAML, overrides and settings share one report") {
  std::string broken = faults("train: {steps: 1\n", {"a b=1", "optimizer.lr=[1"});
  CHECK(broken.find("yaml-syntax") != std::string::npos);
  CHECK(broken.find("is not a key") != std::string::npos);
  CHECK(broken.find("without a ']'") != std::string::npos);
  std::string empty = faults("");
  CHECK(empty.find("error[empty]") != std::string::npos);
  CHECK(faults("- a\n").find("a recipe is a map of sections, this is a list") != std::string::npos);
  CHECK(faults("train:1\n").find("write `train: 1`: a key and its value are separated") !=
        std::string::npos);
}

TEST_CASE("every one of twenty thousand unknown settings is reported") {  // how the work grows:
                                                                          // tests/growth
  std::string text = "train: {steps: 1}\n";
  for (int i = 0; i < 20000; ++i) text += "key_" + std::to_string(i) + ": {a: 1}\n";
  CHECK(faults(text).find("20000 errors") != std::string::npos);
}

TEST_CASE("every typo of every setting of a recipe is found and corrected") {
  const std::string recipe =
      "train:\n  steps: 5\n  micro_batch_size: 2\noptimizer:\n  type: sgd\n  overlap: true\n  lr: "
      "0.1\n  "
      "momentum: 0.5\n";
  REQUIRE(faults(recipe).empty());
  int typos = 0, corrected = 0;
  for (std::string key :
       {"train", "steps", "micro_batch_size", "optimizer", "type", "overlap", "lr", "momentum"}) {
    size_t at = recipe.find(key + ":");
    int line = 1 + static_cast<int>(
                       std::count(recipe.begin(), recipe.begin() + static_cast<long>(at), '\n'));
    std::vector<std::string> wrong = {key + "x", "x" + key};
    for (size_t i = 0; i < key.size() && key.size() > 2; ++i)
      wrong.push_back(key.substr(0, i) + key.substr(i + 1));
    for (size_t i = 0; i + 1 < key.size(); ++i) {
      std::string swapped = key;
      std::swap(swapped[i], swapped[i + 1]);
      if (swapped != key) wrong.push_back(swapped);
    }
    for (const auto& typo : wrong) {
      std::string text = recipe;
      text.replace(at, key.size(), typo);
      std::string report = faults(text);
      CAPTURE(report);
      CHECK(report.find("r.yaml:" + std::to_string(line) + ":") != std::string::npos);
      ++typos;
      size_t help = report.find("did you mean ");
      std::string offered =
          help == std::string::npos
              ? ""
              : report.substr(help + 13, report.find_first_of("?\n", help) - help - 13);
      offered = offered.substr(0, offered.find(' '));
      corrected += offered == key || offered.ends_with("." + key) || offered.starts_with(key + ".");
    }
  }
  MESSAGE(corrected << " of " << typos << " typos got the right first suggestion");
  CHECK(corrected * 100 >= typos * 95);
}

TEST_CASE("null without quotes does not name the plugin or the choice null") {
  struct Sink {
    std::string type = "file", mode = "all";
    void bind(Fields& f) {
      f("type", type, "where to").plugin("sink");
      f("mode", mode, "what").one_of({"all", "null"});
    }
  };
  struct NullSink {
    int64_t size = 0;
    void bind(Fields& f) { f("size", size, "its size").required(); }
  };
  SchemaCatalog known = with_note();
  known.add_section(schema_of<Sink>("sink", "the sink"));
  known.add_component("sink", schema_of<Note>("file", "a file"));
  known.add_component("sink", schema_of<NullSink>("null", "nothing"));
  auto load = [&](std::string text, std::vector<std::string> overrides = {}) {
    Report report;
    auto config = ConfigContainer::load(request("train: {steps: 1}\n" + text, std::move(overrides)),
                                        known, report);
    return report.ok() ? config.type_of("sink") : report.text();
  };
  auto has = [](const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  const char* fault = "null without quotes is not a text; the sink is \"null\"";
  has(load("sink: {type: null, size: 1}\n"),
      {"sink.type: ", fault, "r.yaml:2:14", "write type: \"null\"", "1 error"});
  has(load("sink: null\n"), {"sink: ", fault, "write sink: \"null\"", "error[missing] sink.size"});
  has(load("", {"sink.type=null", "+sink.size=1"}),
      {fault, "write sink.type='\"null\"': ", "1 error"});
  has(load("", {"sink=null"}), {fault, "write sink='\"null\"': "});
  has(load("sink: {mode: ~}\n"),
      {"sink.mode: ~ without quotes is not a text; the choice is \"null\"", "write mode: \"null\"",
       "1 error"});
  // What the messages say to write.
  CHECK(load("sink: {type: \"null\", size: 1}\n") == "null");
  CHECK(load("", {"sink.type=\"null\"", "+sink.size=1"}) == "null");
  CHECK(load("", {"sink=\"null\"", "+sink.size=1"}) == "null");
  CHECK(load("sink: {mode: \"null\"}\n") == "file");
  // An empty section has its defaults; other texts have no such name.
  CHECK(load("sink:\n") == "file");
  has(load("optimizer: {type: null}\n"),
      {"optimizer.type: wanted string, got null", "remove the key"});
}

TEST_CASE("+, ~ and edits find a setting by each of its names") {
  SchemaCatalog all = catalog();
  const std::string text = "optimizer: {lr: 1e-3}\ntrain: {steps: 1}\n",
                    old = "optimizer: {learning_rate: 1e-3}\ntrain: {steps: 1}\n";
  auto load = [&](const std::string& recipe, const std::string& override) {
    Report report;
    ConfigContainer config = ConfigContainer::load(
        {.recipe = "r.yaml", .text = recipe, .overrides = {{override, 2}}}, all, report);
    const Node* lr = config.root().find("optimizer.lr");
    for (const auto& fault : report.diagnostics())
      if (fault.code == "override") return fault.message;
    return lr ? lr->as_text() : std::string("none");
  };
  CHECK(load(text, "+optimizer.learning_rate=3e-3") ==
        "cannot be added: it is 1e-3 already, as optimizer.lr");
  CHECK(load(old, "+optimizer.lr=3e-3") ==
        "cannot be added: it is 1e-3 already, as optimizer.learning_rate");
  CHECK(load(text, "+optimizer.lr=3e-3") == "cannot be added: it is 1e-3 already");
  CHECK(load("train: {steps: 1}\n", "+optimizer.learning_rate=3e-3") == "0.003");
  for (const std::string& recipe : {text, old})
    for (const char* removal :
         {"~optimizer.lr", "~optimizer.learning_rate", "~optimizer.learning_rate=1e-3"})
      CHECK(load(recipe, removal) == "3e-04");
  CHECK(load(text, "~optimizer.learning_rate=2e-3").starts_with("is not removed: "));
}
