#include "mtrain/config/rules.h"

#include <doctest/doctest.h>

#include <memory>

#include "mtrain/base/text.h"
#include "mtrain/config/yaml_load.h"

using namespace mtrain;

namespace {

const std::vector<Rule> kRules = {
    {"tp-divides-heads", "dist.tp", "", "model.heads % dist.tp == 0",
     "model.heads ({model.heads}) is not divisible by dist.tp ({dist.tp})",
     "a rank holds whole heads", "dist.tp"},
    {"tp-divides-groups", "dist.tp", "", "groups % dist.tp == 0 or dist.tp % groups == 0",
     "{groups} key/value heads do not fit dist.tp ({dist.tp})", "", "dist.tp; model.kv_heads"},
    {"world", "dist.tp", "", "world_size % dist.tp == 0",
     "{world_size} ranks cannot form groups of {dist.tp}", "", "dist.tp"},
    {"min-lr", "scheduler.min_lr", "scheduler.type != 'constant'",
     "scheduler.min_lr <= optimizer.lr", "above optimizer.lr ({optimizer.lr})", "",
     "scheduler.min_lr=optimizer.lr / 10; scheduler.type"},
    {"sp", "dist.sp", "dist.sp", "dist.tp > 1", "needs dist.tp > 1", "", "dist.sp",
     Severity::warning},
};
const std::vector<Definition> kDefinitions = {
    {"groups", "model.kv_heads if model.kv_heads > 0 else model.heads"},
};

FieldSpec integer(double min) {
  FieldSpec spec;
  spec.type = FieldType::integer;
  spec.min = min;
  return spec;
}

std::string violations(const Node& root, std::map<std::string, ExpressionValue> facts,
                       std::map<std::string, std::string> renamed = {}) {
  static const FieldSpec kPositive = integer(1), kNatural = integer(0);
  static const FieldSpec kFlag = [] {
    FieldSpec spec;
    spec.type = FieldType::boolean;
    return spec;
  }();
  static const FieldSpec kType = [] {
    FieldSpec spec;
    spec.choices = {"constant", "cosine"};
    return spec;
  }();
  RuleInput input{&root, std::move(facts), [](const std::string& path) -> const FieldSpec* {
                    if (path == "dist.tp" || path == "model.heads") return &kPositive;
                    if (path == "dist.sp") return &kFlag;
                    if (path == "scheduler.type") return &kType;
                    return &kNatural;
                  }};
  input.renamed = std::move(renamed);
  input.last_resort = "model";
  Report report;
  RuleBook(kRules, kDefinitions).check(input, report);
  std::string out;
  for (const auto& d : report.diagnostics())
    out += cat(d.severity == Severity::error ? "" : "warning ", d.code, "|", d.path, "|", d.message,
               "|", d.help, "\n");
  return out;
}

std::string violations(const std::string& recipe,
                       std::map<std::string, ExpressionValue> facts = {}) {
  return violations(parse_yaml(recipe), std::move(facts));
}

}  // namespace

TEST_CASE("a violated rule gives the values and the changes that fix it without breaking another") {
  CHECK(violations("model: {heads: 32, kv_heads: 8}\ndist: {tp: 8}\n") == "");
  CHECK(violations("model: {heads: 32, kv_heads: 8}\ndist: {tp: 3}\n") ==
        "rule tp-divides-heads|dist.tp|model.heads (32) is not divisible by dist.tp (3)|dist.tp=1, "
        "2, 4 or 8\n"
        "rule tp-divides-groups|dist.tp|8 key/value heads do not fit dist.tp (3)|dist.tp=1, 2, 4 "
        "or 8\n");
  // 4 and 8 would break the rule about ranks.
  CHECK(violations("model: {heads: 32, kv_heads: 8}\ndist: {tp: 3}\n",
                   {{"world_size", int64_t{6}}}) ==
        "rule tp-divides-heads|dist.tp|model.heads (32) is not divisible by dist.tp (3)|dist.tp=1 "
        "or 2\n"
        "rule tp-divides-groups|dist.tp|8 key/value heads do not fit dist.tp (3)|dist.tp=1 or 2\n");
}

TEST_CASE("one setting that violates several rules gets values that fix all of them") {
  CHECK(violations("model: {heads: 12, kv_heads: 8}\ndist: {tp: 5}\n") ==
        "rule tp-divides-heads|dist.tp|model.heads (12) is not divisible by dist.tp (5)|dist.tp=1, "
        "2 or 4\n"
        "rule tp-divides-groups|dist.tp|8 key/value heads do not fit dist.tp (5)|dist.tp=1, 2 or "
        "4\n");
}

TEST_CASE(
    "settings of the last resort are offered where the command line set them, and then first") {
  Node root = parse_yaml("model: {heads: 32}\ndist: {tp: 3}\n");
  auto typed = std::make_shared<Source>(SourceKind::command_line, "command line, argument 3",
                                        "model.kv_heads=8");
  root.set("model.kv_heads", Node::integer(8).set_location({.source = typed}));
  CHECK(violations(root, {}).ends_with("|model.kv_heads=3, 6, 9 or 12, or dist.tp=1, 2, 4 or 8\n"));
}

TEST_CASE("rules see the settings that a component calls by other names, and say those") {
  const std::map<std::string, std::string> renamed = {
      {"model.heads", "model.attention.query_heads"}, {"model.kv_heads", "model.query_groups"}};
  Node root = parse_yaml("model: {attention: {query_heads: 32}, query_groups: 8}\ndist: {tp: 3}\n");
  CHECK(
      violations(root, {}, renamed) ==
      "rule tp-divides-heads|dist.tp|model.attention.query_heads (32) is not divisible by dist.tp "
      "(3)|dist.tp=1, 2, 4 or 8\n"
      "rule tp-divides-groups|dist.tp|8 key/value heads do not fit dist.tp (3)|dist.tp=1, 2, 4 "
      "or 8\n");
  CHECK(violations(root, {}) == "");
  // The fix names the setting that exists, and the trial changes it.
  auto typed = std::make_shared<Source>(SourceKind::command_line, "command line, argument 3",
                                        "model.query_groups=8");
  root.set("model.query_groups", Node::integer(8).set_location({.source = typed}));
  CHECK(violations(root, {}, renamed)
            .ends_with("|model.query_groups=3, 6, 9 or 12, or dist.tp=1, 2, 4 or 8\n"));
}

TEST_CASE("a rule about what is not there does not apply") {
  CHECK(violations("dist: {tp: 3}\n") == "");
  CHECK(violations("model: {heads: 6}\ndist: {tp: 4}\n").find("tp-divides-heads") !=
        std::string::npos);
  CHECK(violations("model: {heads: ???}\ndist: {tp: 4}\n") == "");
  CHECK(violations("{}") == "");
}

TEST_CASE("conditions, computed fixes, choices, flags and warnings") {
  CHECK(violations("scheduler: {type: cosine, min_lr: 0.5}\noptimizer: {lr: 0.1}\n") ==
        "rule min-lr|scheduler.min_lr|above optimizer.lr (0.1)|scheduler.min_lr=0.01, or "
        "scheduler.type=constant\n");
  CHECK(violations("scheduler: {type: constant, min_lr: 0.5}\noptimizer: {lr: 0.1}\n") == "");
  CHECK(violations("dist: {tp: 1, sp: true}\n") ==
        "warning rule sp|dist.sp|needs dist.tp > 1|dist.sp=false\n");
}

TEST_CASE("the places of the other settings are reported") {
  auto source =
      std::make_shared<Source>(SourceKind::file, "r.yaml", "model: {heads: 6}\ndist: {tp: 4}\n");
  Report faults;
  auto root = load_yaml(source, faults);
  REQUIRE(root.has_value());
  Report report;
  RuleBook(kRules, kDefinitions)
      .check({&*root, {}, [](const std::string&) { return nullptr; }}, report);
  REQUIRE(report.errors() == 1);
  const Diagnostic& d = report.diagnostics()[0];
  CHECK(d.where.text() == "r.yaml:2:12");
  CHECK(d.notes ==
        std::vector<std::string>{"a rank holds whole heads", "model.heads = 6 from r.yaml:1:16"});
  CHECK(d.help.empty());
}

TEST_CASE("values too large to compute with are an error and no crash") {
  std::vector<Rule> rules = {{"big", "a", "", "a * a > 0", "", "", "a"}};
  Node root = parse_yaml("a: 9000000000000000000\n");
  Report report;
  FieldSpec spec = integer(0);
  RuleBook(rules, {}).check({&root, {}, [&](const std::string&) { return &spec; }}, report);
  REQUIRE(report.errors() == 1);
  CHECK(report.diagnostics()[0].message == "cannot be checked: the result does not fit in 64 bits");
  std::vector<Definition> loop = {{"x", "y"}, {"y", "x"}};
  Report looped;
  RuleBook({{"loop", "a", "", "x > 0", "", "", ""}}, loop).check({&root, {}, {}}, looped);
  CHECK(looped.errors() == 1);
}

TEST_CASE("names of an expression, and the rules about a setting") {
  CHECK(names_in("not 'a.b' == c.d and min(x, 2e3) in e_f or len(g.h) == 1") ==
        std::vector<std::string>{"c.d", "x", "e_f", "g.h"});
  RuleBook book(kRules, kDefinitions);
  auto ids = [&](const char* path) {
    std::string out;
    for (const auto* rule : book.about(path)) out += cat(rule->id, " ");
    return out;
  };
  CHECK(ids("model.kv_heads") == "tp-divides-groups ");
  CHECK(ids("dist.tp") == "tp-divides-heads tp-divides-groups world sp ");
  CHECK(ids("nothing") == "");
}

TEST_CASE("a setting without effect is a warning where the user wrote it") {
  const std::vector<Rule> rules = {
      {"margin", "p.margin", "", "delayed", "", "scales of earlier steps", "p.recipe='delayed'",
       Severity::warning, true},
      {"window", "p.window", "", "delayed", "another {p.recipe}", "", "", Severity::warning, true}};
  const std::vector<Definition> definitions = {
      {"delayed", "p.fp8 != 'none' and p.recipe == 'delayed'"}};
  FieldSpec count = integer(0), word;
  count.default_value = "0";
  word.choices = {"tensorwise", "delayed"};
  const auto typed = std::make_shared<Source>(SourceKind::command_line, "command line", "");
  bool any_location = true;
  auto shown = [&](const std::string& recipe, std::initializer_list<const char*> on_command_line) {
    Report report;
    auto root = load_yaml(std::make_shared<Source>(SourceKind::file, "r.yaml", recipe), report);
    REQUIRE(root.has_value());
    for (const char* path : on_command_line) root->find(path)->set_location({.source = typed});
    RuleInput input;
    input.root = &*root;
    input.field = [&](const std::string& path) {
      return path == "p.margin" || path == "p.window" ? &count : &word;
    };
    if (!any_location) input.given = [&](const Location& where) { return where.source == typed; };
    RuleBook(rules, definitions).check(input, report);
    CHECK(report.errors() == 0);
    std::string out;
    for (const auto& d : report.diagnostics())
      out += cat(d.path, "|", d.message, "|", d.where.text(), "|", d.help, "\n");
    return out;
  };
  CHECK(shown("p: {fp8: none, recipe: delayed, margin: 2}", {}) ==
        "p.margin|2 has no effect with p.fp8=none and p.recipe=delayed|r.yaml:1:41|p.margin=0\n");
  CHECK(shown("p: {fp8: e4m3, recipe: tensorwise, margin: 2}", {}) ==
        "p.margin|2 has no effect with p.fp8=e4m3 and p.recipe=tensorwise|r.yaml:1:44|p.margin=0, "
        "or p.recipe=delayed\n");
  CHECK(shown("p: {fp8: e4m3, recipe: tensorwise, window: 3}", {}) ==
        "p.window|3 has no effect with another tensorwise|r.yaml:1:44|p.window=0\n");
  CHECK(shown("p: {fp8: e4m3, recipe: delayed, margin: 2}", {}) == "");
  CHECK(shown("p: {fp8: none, recipe: delayed, margin: 0}", {}) == "");
  CHECK(shown("p: {margin: 2}", {}) == "");  // the condition cannot be computed
  // The command line switches the feature off: the file's settings of it are no mistake.
  CHECK(shown("p: {fp8: none, recipe: delayed, margin: 2}", {"p.fp8"}) == "");
  CHECK(shown("p: {fp8: none, recipe: delayed, margin: 2}", {"p.fp8", "p.margin"}) ==
        "p.margin|2 has no effect with p.fp8=none and p.recipe=delayed|command line|p.margin=0\n");
  any_location = false;
  CHECK(shown("p: {fp8: none, recipe: delayed, margin: 2}", {}) == "");
  CHECK(shown("p: {fp8: none, recipe: delayed, margin: 2}", {"p.margin"}) != "");
}
