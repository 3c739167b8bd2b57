// The mistakes that people make in their first YAML files: each is reported at its place, with what
// to write instead.
#include <doctest/doctest.h>

#include <set>

#include "built_plugins.h"
#include "has.h"
#include "mtrain/base/text.h"
#include "mtrain/config/meant_values.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"

using namespace mtrain;
using testing::has;

namespace {

/// All of a recipe but its train section; three lines.
constexpr const char* kRest =
    "model: {type: llama, seq_length: 32, layers: 2, hidden_size: 32, heads: 4}\n"
    "dataset: mock\n"
    "tokenizer: byte\n";

Report report_of(const std::string& text) {
  static const SchemaCatalog catalog = schema_catalog(testing::built_plugins());
  Report report;
  ConfigContainer::load({.recipe = "r.yaml", .text = text}, catalog, report);
  return report;
}

struct Mistake {
  std::string text;
  std::string place;    // of the only error, or of the first
  std::string message;  // a part of it
  std::string help;     // a part of it
};

/// Every mistake comes after three valid lines.
void check(const std::vector<Mistake>& mistakes) {
  for (const Mistake& mistake : mistakes) {
    Report report = report_of(kRest + mistake.text);
    report.sort();
    std::string text = report.text();
    CAPTURE(mistake.text);
    CAPTURE(text);
    REQUIRE(report.errors() >= 1);
    const Diagnostic& first = report.diagnostics().front();
    CHECK(first.where.text() == "r.yaml:" + mistake.place);
    CHECK(text.find(mistake.message) != std::string::npos);
    CHECK(first.help.find(mistake.help) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("tabs in the indentation") {
  const std::string help = "replace the tab with spaces, two for each level";
  check({{"train:\n\tsteps: 5\n", "5:1", "a tab in the indentation", help},
         {"train:\n  steps: 5\n\tmicro_batch_size: 2\n", "6:1", "a tab in the indentation", help}});
  CHECK(report_of(std::string(kRest) + "train:\n  steps:\t5\n")
            .ok());  // between key and value a tab is a space
}

TEST_CASE("no colon, no space after it, or '=' in its place") {
  const std::string help = "write `steps: 5`: a key and its value are separated by ':' and a space";
  check({{"train:\n  steps 5\n", "5:3", "wanted a map of settings, got a string", help},
         {"train:\n  steps:5\n", "5:3", "wanted a map of settings, got a string", help},
         {"train:\n  steps = 5\n", "5:3", "wanted a map of settings, got a string", help},
         {"train: {steps:5}\n", "4:9", "no such setting", help},
         {"train:\n  micro_batch_size: 1\n  steps 5\n", "6:3", "no such setting", help},
         {"train:\n  micro_batch_size: 1\n  steps:5\n", "6:3", "no such setting", help},
         {"train:\n  micro_batch_size: 1\n  steps = 5\n", "6:3", "no such setting", help},
         {"train.steps = 5\n", "4:1", "no such setting", "write `train: {steps: 5}`"},
         {"train:\n  steps 5\n  micro_batch_size: 1\n", "5:3",
          "no ': ' between a key and its value", "write `steps: 5`"},
         {"train:\n  steps = 5\n  micro_batch_size: 1\n", "5:3",
          "no ': ' between a key and its value", "write `steps: 5`"},
         {"train:\n  steps:5\n  micro_batch_size: 1\n", "5:3",
          "no ': ' between a key and its value", "write `steps: 5`"},
         {"train\n  steps: 5\n", "4:1", "no ': ' between a key and its value", "write `train:`"},
         {"train.steps: 5\n", "4:1", "no such setting",
          "write `train: {steps: 5}`: a dot in a YAML key is part of its name"}});
}

TEST_CASE("wrong indentation") {
  check({{"train:\n  steps: 5\n   micro_batch_size: 2\n", "6:4",
          "indented deeper than 'steps' above it", "indent it by 2 spaces"},
         {"  train:\n    steps: 5\n", "4:3", "indented deeper than 'tokenizer' above it",
          "indent it by 0 spaces"},
         {"train:\n  steps: 5\n micro_batch_size: 2\n", "6:2", "indented by 1 space",
          "indent it by 2 spaces (as 'steps') or 0 spaces (as 'train')"},
         {"train:\nsteps: 5\n", "5:1", "no such setting",
          "indent it by 2 spaces: it is a setting of 'train:'"}});
}

TEST_CASE("a key that appears twice") {
  check(
      {{"train:\n  steps: 5\n  steps: 6\n", "6:3", "this key appears twice", "keep one of the two"},
       {"train: {steps: 5}\noptimizer: {lr: 1e-3}\ntrain: {micro_batch_size: 1}\n", "6:1",
        "the first one is at r.yaml:4:1", "keep one of the two"}});
}

TEST_CASE("two ': ' in one setting inside brackets that are closed") {
  check({{"run: {name: a: b}\n", "4:13", "a second ': ' in one setting", "\"a: b\""},
         {"train: {steps: 5, skip_steps: [1, 2]}\nrun: {dir: x, name: a: b, threads: 1}\n", "5:21",
          "a second ': ' in one setting", "\"a: b\""},
         {"run: {name: a: b\n", "4:6", "this '{' is never closed", "add the '}'"}});
}

TEST_CASE("brackets and quotes that are never closed") {
  check({{"train: {steps: 5\noptimizer: {lr: 1e-3}\n", "4:8", "this '{' is never closed",
          "add the '}'"},
         {"train: {steps: 5", "4:8", "this '{' is never closed", "add the '}'"},
         {"train:\n  steps: 5\n  skip_steps: [1, 2\noptimizer:\n  lr: 1\n", "6:15",
          "this '[' is never closed", "add the ']'"},
         {"train: {steps: 5, skip_steps: [1, 2}\n", "4:31", "this '[' is never closed",
          "add the ']'"},
         {"train: {steps: 5}}\n", "4:18", "that was not opened", "remove it"},
         {"train: {steps: 5}\nrun:\n  name: \"first\n  threads: 1\n", "6:9",
          "a quote that is not closed", "add the closing quote"},
         {"train: {steps: 5}\nrun:\n  name: 'first\n  dir: 'x'\n", "6:9",
          "this quote is not closed on its line", "add the closing '"}});
}

TEST_CASE("an interpolation inside { } or [ ]") {
  check({{"train: {steps: 5}\noptimizer: {lr: ${scheduler.min_lr}}\n", "5:17",
          "a ${…} inside { } or [ ] needs quotes", "write \"${scheduler.min_lr}\""},
         {"train: {steps: 5}\noptimizer:\n  {lr: 1, weight_decay: ${scheduler.min_lr}}\n", "6:25",
          "needs quotes", "write \"${"}});
  CHECK(report_of(std::string(kRest) +
                  "train: {steps: 5}\noptimizer: {lr: \"${scheduler.min_lr}\"}\n")
            .ok());
}

TEST_CASE("a list for a map, a map for a list, a value for a list") {
  check(
      {{"train:\n  - steps: 5\n", "5:3", "wanted a map of settings, got a list", "without '-'"},
       {"train: [steps, 5]\n", "4:8", "wanted a map of settings, got a list", "lines `key: value`"},
       {"train: {steps: 5, batch_schedule: 0:4}\n", "4:35", "wanted a list of strings",
        "write [\"0:4\"]"},
       {"train:\n  steps: 5\n  batch_schedule:\n    -0:4\n    -2:8\n", "7:5",
        "wanted a list of strings", "start each item with '-' and a space"},
       {"train: {steps: {a: 1}}\n", "4:16", "wanted an integer, got a map", ""}});
}

TEST_CASE("values of the wrong type, and names that are misspelled") {
  check({{"train: {steps: five}\n", "4:16", "wanted an integer, got the text five", ""},
         {"train: {stesp: 5}\n", "4:9", "no such setting", "did you mean train.steps?"},
         {"train: {steps: 5}\nrun: {deterministic: yes}\n", "5:22", "wanted true or false",
          "write true"},
         {"train: {steps: 5}\nrun: {deterministic: no}\n", "5:22", "wanted true or false",
          "write false"},
         {"train: {steps: 5}\noptimizer: {lr: '1e-3'}\n", "5:17",
          "wanted a number, got the quoted string", "write 1e-3 without quotes"},
         {"train: {steps: 5}\noptimizer: {lr: 0,001}\n", "5:19", "no such setting",
          "in { } a ',' begins the next setting: write '.'"},
         {"run: {name: 90,10,0}\n", "4:16", "no such setting",
          "in { } a ',' begins the next setting: write the text in quotes, name: \"90,10,0\""},
         {"run: {name: 90, 5,5}\n", "4:17", "no such setting",
          "in { } a ',' begins the next setting: write the text in quotes, name: \"90,5,5\""},
         {"train:\n  steps: 5# five\n", "5:10", "wanted an integer, got the text \"5# five\"",
          "write 5 ('# five' is a part of the value: in YAML a comment starts with ' #'"},
         {"train: {steps: 5}\nddp: {bucket_size: 64MB}\n", "5:20",
          "64MB is a number of bytes; the unit here is parameters", ""}});
  CHECK(report_of(std::string(kRest) + "train: {steps: 1e3}\noptimizer: {lr: 1e-3}\n").ok());
}

TEST_CASE("anchors work, the merge key does not") {
  CHECK(report_of(std::string(kRest) + "train: {steps: &n 5}\nvalidation: {interval: *n}\n").ok());
  check({{"train: &t\n  steps: 5\noptimizer:\n  <<: *t\n", "7:3",
          "the merge key << is not supported", "through 'defaults:'"},
         {"train: {steps: *n}\n", "4:16", "an alias without an anchor", "define &name"}});
}

TEST_CASE(
    "on the command line, a text may hold commas, and a list for a text is answered with it") {
  static const SchemaCatalog catalog = schema_catalog(testing::built_plugins());
  const std::string recipe =
      "model: {type: llama}\ndataset: {type: gpt, path: x}\ntokenizer: byte\ntrain: {steps: 1}\n";
  auto load = [&](const std::string& override, Report& report) {
    return ConfigContainer::load({.recipe = "r.yaml", .text = recipe, .overrides = {{override, 2}}},
                                 catalog, report);
  };
  Report good, list, several;
  ConfigContainer config = load("dataset.split=90,10,0", good);
  CHECK_MESSAGE(good.ok(), good.text());
  CHECK(config.component("dataset").at("split").as_string() == "90,10,0");
  load("dataset.split=[90,10,0]", list);
  CHECK_MESSAGE(list.text().find("write \"90,10,0\"") != std::string::npos, list.text());
  load("train.steps=1,2", several);
  CHECK_MESSAGE(
      several.text().find("several values, but in one run a setting has one") != std::string::npos,
      several.text());
}

TEST_CASE("a plugin that is not found may be one's own, or one with a similar name") {
  check({{"train: {steps: 5}\noptimizer: {type: adafactor}\n", "5:19",
          "--plugin-path DIR or MTRAIN_PLUGIN_PATH", ""},
         {"train: {steps: 5}\noptimizer: {type: lionn}\n", "5:19", "no optimizer 'lionn'",
          "did you mean lion?"}});
  const std::string text =
      report_of(std::string(kRest) + "train: {steps: 5}\noptimizer: {type: adafactor}\n").text();
  CHECK(text.find("did you mean") == std::string::npos);
}

TEST_CASE("comments, quotes, blanks and sections of other languages") {
  const std::string help = "write '#' instead, with a space before it";
  check(
      {{"// the loop\ntrain: {steps: 5}\n", "4:1", "'//' does not start a comment in YAML", help},
       {"train: // the loop\n  steps: 5\n", "4:8", "'//' does not start a comment in YAML", help},
       {"train:\n  steps: 5 // five\n", "5:12", "'//' does not start a comment in YAML", help},
       {"/* the loop */\ntrain: {steps: 5}\n", "4:1", "'/*' does not start a comment in YAML",
        help},
       {"-- the loop\ntrain: {steps: 5}\n", "4:1", "this line has no ': '",
        "or '#' before a comment"},
       {"train:\n  steps: \u201c5\u201d\n", "5:10", "is not a quote in YAML", "write \"5\""},
       {"train:\n  steps:\u00a05\n", "5:9", "a no-break space (U+00A0)", "replace it with a space"},
       {"train:\n  steps\uff1a5\n", "5:3", "wanted a map of settings", "write `steps: 5`"},
       {"train:\n  steps: 5\n  skip_steps:\n    \u2013 1\n", "7:5", "does not start a list item",
        "start each item with '-' and a space"},
       {"<<<<<<< HEAD\ntrain: {steps: 5}\n=======\ntrain: {steps: 6}\n>>>>>>> x\n", "4:1",
        "a marker of a merge conflict", "keep one"},
       {"```\ntrain: {steps: 5}\n", "4:1", "a block in Markdown", "remove this line"},
       {"train: {steps: {{ steps }}}\n", "4:17", "a list or map as a key",
        "write ${section.key}"}});
  CHECK(report_of(std::string(kRest) + "train: {steps: 5}\nrun:\n  name: \"a // b\"\n  # a // b\n")
            .ok());
  CHECK(
      report_of(std::string(kRest) + "train:\n  steps: ${= 10 // 2}\nrun: {name: s3://x}\n").ok());
}

TEST_CASE("files that are no recipes") {
  auto only = [](const std::string& text) {
    const Report report = report_of(text);
    CHECK_MESSAGE(report.errors() == 1, report.text());
    return report.text();
  };
  CHECK(has(only("# mtrain\n\nTrains models.\n\nRun `cmake`:\n\n    cmake --build x\n\n| a | b "
                 "|\n|---|---|\n"),
            "check that it is a recipe"));
  CHECK(has(only("Trains models.\nOn one machine.\n"), "if this file is meant to be a recipe"));
  CHECK(has(only("train.steps=5\nmodel.type=llama\n"), "given with -f"));
  CHECK(has(only("[train]\nsteps = 5\n"), "write `train:`, and its settings below"));
  CHECK(has(only("- train: {steps: 5}\n"), "without '-' or '[ ]'"));
  CHECK(has(only(std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0", 18)), "the file is binary"));
  CHECK(
      has(only(std::string("\x40\0\0\0\0\0\0\0{\"__metadata__\":{}}", 27)), "the file is binary"));
}

TEST_CASE("choices by the names that other trainers have for them") {
  static const SchemaCatalog catalog = schema_catalog(testing::built_plugins());
  std::set<std::string> ours;  // all choices and all names of components
  for (const Schema& section : catalog.sections())
    for (const Schema* owner : catalog.all_owners(section.name))
      for (const FieldSpec& spec : owner->fields) {
        ours.insert(spec.choices.begin(), spec.choices.end());
        if (spec.plugin_kind.empty()) continue;
        for (const std::string& name : catalog.components(spec.plugin_kind)) ours.insert(name);
      }
  for (const ForeignChoice& row : foreign_choices())
    CHECK_MESSAGE(ours.contains(std::string(row.ours)), row.name, " leads to ", row.ours);
  const std::string train = "train: {steps: 5}\n";
  check({{train + "mixed_precision: {dtype: torch.bfloat16}\n", "5:26", "got torch.bfloat16",
          "write bf16 (torch.bfloat16 is its name in PyTorch)"},
         {train + "mixed_precision: {dtype: float32}\n", "5:26", "got float32", "write fp32"},
         {train + "mixed_precision: {dtype: half}\n", "5:26", "got half", "write fp16"},
         {train + "mixed_precision: {dtype: BF16}\n", "5:26", "got BF16", "write bf16"},
         {train + "mixed_precision: {dtype: bf16#fast}\n", "5:26", "got bf16#fast", "write bf16"},
         {train + "optimizer: adamw_torch\n", "5:12", "no optimizer 'adamw_torch'",
          "write adamw (adamw_torch is its name in transformers)"},
         {train + "optimizer:\n  type: |\n    adamw\n", "6:9", "no optimizer", "write adamw"},
         {train + "scheduler: {type: cosine_with_warmup}\n", "5:19", "got cosine_with_warmup",
          "write cosine"},
         {train + "dist: {comm: gloo}\n", "5:14", "no comm 'gloo'",
          "write tcp (gloo is its name in PyTorch)"},
         {train + "checkpoint: {resume: true}\n", "5:22", "got true",
          "write auto (this setting is not a boolean)"}});
}

TEST_CASE("an option of a group, given as a recipe") {
  static const SchemaCatalog catalog = schema_catalog(testing::built_plugins());
  Report report;
  ConfigContainer::load(
      {.recipe = "recipes/optimizer/fast.yaml", .text = "type: adamw\nlr: 1e-3\n"}, catalog,
      report);
  const std::string text = report.text();
  CHECK_MESSAGE(text.find("this file is an option of the group 'optimizer': choose it in a recipe, "
                          "optimizer=fast") != std::string::npos,
                text);
}

TEST_CASE("a component's name as the key of its settings") {
  check({{"train: {steps: 5}\noptimizer:\n  adamw:\n    lr: 1e-3\n", "6:3", "no such setting",
          "write `optimizer: {type: adamw}`: its settings go into the same map"}});
}

TEST_CASE("two colons on a line") {
  check({{"train: {steps: 5}\nrun:\n  name: first: second\n", "6:9", "a second ': ' on one line",
          "\"first: second\""}});
}

TEST_CASE("line ends of Windows and a byte-order mark do no harm, and places stay right") {
  std::string windows = std::string(kRest) + "train:\n  stesp: 5\n";
  for (size_t at = 0; (at = windows.find('\n', at)) != std::string::npos; at += 2)
    windows.replace(at, 1, "\r\n");
  for (const std::string& text : {windows, "\xEF\xBB\xBF" + windows}) {
    Report report = report_of(text);
    report.sort();
    REQUIRE(report.errors() >= 1);
    CHECK(report.diagnostics().front().where.text() == "r.yaml:5:3");
    CHECK(report.diagnostics().front().help == "did you mean train.steps?");
  }
  CHECK(report_of("\xEF\xBB\xBF" + std::string(kRest) + "train: {steps: 5}\r\n").ok());
}
