#include "mtrain/config/override.h"

#include <doctest/doctest.h>

#include "mtrain/base/text.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_write.h"

using namespace mtrain;

namespace {

/// The tree after the overrides, as one line; or the faults.
std::string after(const std::string& yaml, const std::vector<std::string>& overrides) {
  Node root = yaml.empty() ? Node::map() : parse_yaml(yaml);
  Report report;
  int argument = 1;
  for (const auto& text : overrides)
    if (auto override = parse_override({text, argument++}, report)) apply_override(root, *override, report);
  return report.ok() ? write_flow(root) : report.text();
}

}  // namespace

// https://hydra.cc/docs/advanced/override_grammar/basic/ unless said otherwise
TEST_CASE("values are typed by the override grammar") {
  struct Row {
    const char* text;
    const char* value;  // as one line of YAML
    NodeKind kind;
  };
  using enum NodeKind;
  const Row rows[] = {
      {"k=1", "1", integer},
      {"k=-12", "-12", integer},
      {"k=+3", "+3", integer},
      {"k=1_000", "1000", integer},
      {"k=010", "\"010\"", string},
      {"k=0x10", "\"0x10\"", string},
      {"k=1__0", "\"1__0\"", string},
      {"k=1_", "\"1_\"", string},
      {"k=1.5", "1.5", number},
      {"k=.5", ".5", number},
      {"k=1.", "1.", number},
      {"k=1e-4", "1e-4", number},
      {"k=1_0.5", "10.5", number},
      {"k=inf", ".inf", number},
      {"k=-INF", "-.inf", number},
      {"k=NaN", ".nan", number},
      {"k=true", "true", boolean},
      {"k=FaLsE", "false", boolean},
      {"k=null", "null", null},
      {"k=NULL", "null", null},
      {"k=yes", "\"yes\"", string},
      {"k=", "\"\"", string},
      {"k= ", "\"\"", string},
      {"k=''", "\"\"", string},
      {"k='1'", "\"1\"", string},
      {"k=\"true\"", "\"true\"", string},
      {"k=abc", "abc", string},
      {"k= a  b ", "a  b", string},
      {"k=a/b-c+d.e$f%g*h@i?j|k", "\"a/b-c+d.e$f%g*h@i?j|k\"", string},
      {"k=http://x/y:1", "http://x/y:1", string},
      {"k='a, b = c'", "\"a, b = c\"", string},
      {"k='it\\'s'", "\"it's\"", string},
      {"k='a\\\\'", "\"a\\\\\"", string},
      {"k='a\\\\b'", "\"a\\\\\\\\b\"", string},
      {"k='a\\nb'", "\"a\\\\nb\"", string},
      {"k=a\\,b", "\"a,b\"", string},
      {"k=a\\=b\\ ", "\"a=b \"", string},
      {"k=1\\,5", "\"1,5\"", string},
      {"k=\\[x\\]", "\"[x]\"", string},
      {"k=C:\\dir", "\"C:\\\\dir\"", string},
      {"k=${a.b}", "\"${a.b}\"", string},
      {"k=x_${a}_${b:c,d}", "\"x_${a}_${b:c,d}\"", string},
      {"k=${a.${b}}", "\"${a.${b}}\"", string},  // wider than Hydra: nested braces need no quotes
      {"k=[]", "[]", list},
      {"k=[1, a b ,'c', 1e3,null]", "[1, a b, c, 1e3, null]", list},
      {"k=[[1],[2,[3]]]", "[[1], [2, [3]]]", list},
      {"k={}", "{}", map},
      {"k={a:1,b: {c: [x]}}", "{a: 1, b: {c: [x]}}", map},
      {"k={'a b': 1}", "{a b: 1}", map},
      {"k=[{a: 1}]", "[{a: 1}]", list},
      // Characters without a token in Hydra's grammar make the value text, up to the next comma.
      {"k=epoch=3.ckpt", "epoch=3.ckpt", string},
      {"k=a#b", "\"a#b\"", string},
      {"k=~/data", "\"~/data\"", string},
      {"k=~", "\"~\"", string},
      {"k=a&b", "\"a&b\"", string},
      {"k=don't", "\"don't\"", string},
      {"k=naïve 你", "\"naïve 你\"", string},
      {"k=a=[1]", "\"a=[1]\"", string},
      {"k==", "\"=\"", string},
      {"k=50%", "\"50%\"", string},
      {"k=[épée, a=b]", "[\"épée\", a=b]", list},
  };
  for (const auto& row : rows) {
    CAPTURE(row.text);
    Report report;
    auto override = parse_override({row.text, 1}, report);
    CAPTURE(report.text());
    REQUIRE(override.has_value());
    REQUIRE(override->value.has_value());
    CHECK(override->key == "k");
    CHECK(write_flow(*override->value) == row.value);
    CHECK(override->value->kind() == row.kind);
  }
}

TEST_CASE("what is no override is refused where it goes wrong") {
  struct Row {
    std::string text;
    const char* place;
    const char* words;
  };
  const Row rows[] = {
      {"k", "argument 7: k", "key=value"},
      {"=1", "argument 7: =1", "no key"},
      {"a b=1", "argument 7: a b=1", "no key"},
      {"a..b=1", "argument 7: a..b=1", "no path"},
      {"a.=1", "", "no path"},
      {"k=1,2", "argument 7\n", "[1,2]"},
      {"k=a,b=c", "argument 7\n", "several values"},
      {"k=[1", "argument 7\n", "']'"},
      {"k={a:1", "argument 7\n", "'}'"},
      {"k={a}", "argument 7\n", "':'"},
      {"k={a:1,a:2}", "argument 7\n", "twice"},
      {"k={:1}", "argument 7\n", "empty key"},
      {"k=x[1]", "argument 7\n", "'['"},
      {"k=1]", "argument 7\n", "']'"},
      {"k=[1]]", "argument 7\n", "']'"},
      {"k=foo(1)", "argument 7\n", "no function foo"},
      {"k='a'b", "argument 7\n", "closing quote"},
      {"k=['a]", "argument 7\n", "closing"},
      {"k=${a", "argument 7\n", "'${'"},
      {"k=\xFF", "", "UTF-8"},
      {std::string("k=\0", 3), "", "NUL"},
      {"k=" + std::string(70000, 'x'), "", "too long"},
      {"k=" + std::string(1000, '['), "argument 7\n", "64"},
      {"k=" +
           [] {
             std::string s;
             for (int i = 0; i < 1000; ++i) s += "{a:";
             return s;
           }(),
       "argument 7\n", "64"},
  };
  for (const auto& row : rows) {
    std::string shown = printable(row.text, 60);
    CAPTURE(shown);
    Report report;
    CHECK_FALSE(parse_override({row.text, 7}, report).has_value());
    REQUIRE(report.errors() == 1);
    std::string text = report.text();
    CAPTURE(text);
    CHECK(text.find(row.place) != std::string::npos);
    CHECK(text.find(row.words) != std::string::npos);
    CHECK(text.size() < 1200);
  }
}

// https://hydra.cc/docs/advanced/override_grammar/basic/#modifying-the-config-object
TEST_CASE("the four forms change the tree") {
  struct Row {
    const char* yaml;
    std::vector<std::string> overrides;
    const char* result;  // the tree, or words of the fault
  };
  const Row rows[] = {
      {"a: {b: 1}", {"a.b=2"}, "{a: {b: 2}}"},
      {"a: {b: 1}", {"a.c=2"}, "{a: {b: 1, c: 2}}"},  // whether c exists is the schema's to say
      {"a: {b: 1}", {"a={c: 2}"}, "{a: {b: 1, c: 2}}"},
      {"a: [1, 2]", {"a=[3]"}, "{a: [3]}"},
      {"a: [1, 2]", {"a.0=5"}, "{a: [5, 2]}"},
      {"a: [1, {x: 1}]", {"a[1].x=5"}, "{a: [1, {x: 5}]}"},
      {"a: {b: 1}", {"+a.b=2"}, "already"},
      {"a: {b: null}", {"+a.b=2"}, "{a: {b: 2}}"},
      {"a: {b: ???}", {"+a.b=2"}, "{a: {b: 2}}"},
      {"a: {b: 1}", {"+a={c: 2}"}, "{a: {b: 1, c: 2}}"},
      {"a: [1]", {"+a=[2]"}, "{a: [2]}"},
      {"a: 1", {"+b.c=2"}, "{a: 1, b: {c: 2}}"},
      {"a: {b: 1}", {"++a.b=2", "++a.c=3"}, "{a: {b: 2, c: 3}}"},
      {"a: {b: 1, c: 2}", {"~a.b"}, "{a: {c: 2}}"},
      {"a: {b: 1}", {"~a.b=1"}, "{a: {}}"},
      {"a: {b: 1}", {"~a.b=2"}, "is not removed"},
      {"a: {bb: 1}", {"~a.bc"}, "did you mean ~a.bb"},
      {"a: [1, 2, 3]", {"~a.1"}, "{a: [1, 3]}"},
      {"a: [1]", {"~a.7"}, "not in the recipe"},
      {"a: 1", {"a.b=2"}, "inside an integer"},
      {"a: [1]", {"a.5=2"}, "inside a list"},
      {"a: null", {"a.b=2"}, "{a: {b: 2}}"},
      {"a: {b: 1}", {"a=5"}, "{a: 5}"},
      {"a: 1", {"a=2", "a=3"}, "{a: 3}"},
  };
  for (const auto& row : rows) {
    std::string all = join(row.overrides, " ");
    CAPTURE(all);
    std::string result = after(row.yaml, row.overrides);
    CAPTURE(result);
    if (row.result[0] == '{')
      CHECK(result == row.result);
    else
      CHECK(result.find(row.result) != std::string::npos);
  }
}

TEST_CASE("an override remembers what it replaces") {
  Node root = parse_yaml("a:\n  b: 1\n", "r.yaml");
  Report report;
  for (int argument : {3, 4}) {
    auto override = parse_override({cat("a.b=", argument), argument}, report);
    REQUIRE(override.has_value());
    apply_override(root, *override, report);
  }
  const Node& node = root.at("a.b");
  CHECK(node.loc().text() == "command line, argument 4");
  REQUIRE(node.history().size() == 2);
  CHECK(node.history()[0].where.text() == "r.yaml:2:6");
  CHECK(node.history()[0].value == "1");
  CHECK(node.history()[1].where.text() == "command line, argument 3");
}

TEST_CASE("overrides are told from other arguments") {
  for (const char* text : {"a=1", "a.b=", "+a=1", "++a.b=2", "~a", "~a=1", "a/b@c=d", "a[0]=1"})
    CHECK_MESSAGE(looks_like_override(text), text);
  for (const char* text : {"a", "recipe.yaml", "--x=1", "a b=1", "=1", "+", "~", ""})
    CHECK_MESSAGE(!looks_like_override(text), text);
}

TEST_CASE("no text crashes the override parser") {
  const std::string alphabet = "a1=.+~[]{}()'\"\\$:, \t-";
  uint32_t state = 12345;
  for (int round = 0; round < 200000; ++round) {
    std::string text = round % 2 ? "k=" : "";
    for (uint32_t n = (state >> 8) % 12; n > 0; --n) {
      state = state * 1664525u + 1013904223u;
      text += alphabet[(state >> 16) % alphabet.size()];
    }
    state = state * 1664525u + 1013904223u;
    Report report;
    auto override = parse_override({text, 1}, report);
    CHECK(override.has_value() == report.ok());
    if (!override) continue;
    Node root = parse_yaml("k: {a: [1, {a: 2}]}\na: 1\n");
    apply_override(root, *override, report);
    CHECK(parse_yaml(write_yaml(root)).same_value(root));
  }
}
