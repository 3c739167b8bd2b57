#include "mtrain/config/override.h"

#include <doctest/doctest.h>

#include "mtrain/base/text.h"
#include "mtrain/config/fields.h"
#include "mtrain/config/interpolate.h"
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
    if (auto override = parse_override({text, argument++}, report))
      apply_override(root, *override, report);
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
      {"k=\"a\\nb\\t\\\"c\\\"\\n\"", R"("a\nb\t\"c\"\n")", string},
      {"k=\"a\\\\nb\\d\"", R"("a\\nb\\d")", string},
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
      {"k=50%", "50%", string},
      {"k=[épée, a=b]", "[\"épée\", a=b]", list},
      // https://hydra.cc/docs/advanced/override_grammar/extended/#type-casting
      {"k=int(3.9)", "3", integer},
      {"k=int('010')", "10", integer},
      {"k=int(true)", "1", integer},
      {"k=float(3)", "3.0", number},
      {"k=float('1e-4')", "0.0001", number},
      {"k=str(1e3)", "\"1000.0\"", string},
      {"k=str(True)", "\"true\"", string},
      {"k=bool(0)", "false", boolean},
      {"k=bool('TRUE')", "true", boolean},
      {"k=str([1,{a:2}])", "[\"1\", {a: \"2\"}]", list},
      {"k=float({a: [1]})", "{a: [1.0]}", map},
      {"k=[int(1.5), str(2)]", "[1, \"2\"]", list},
      {"k=int( value = 2.5 )", "2", integer},
      {"k=sort([3,1,2])", "[1, 2, 3]", list},
      {"k=sort([a,c,b],reverse=true)", "[c, b, a]", list},
      {"k=shuffle([1,2,3],seed=0)", "[1, 3, 2]", list},
      {"k=int (2.5)", "2", integer},
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
      {"=1", "argument 7: =1", "the key before '=' is empty"},
      {"a b=1", "argument 7: a b=1", "not a key"},
      {"a..b=1", "argument 7: a..b=1", "not the path"},
      {"a.=1", "", "not the path"},
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
      {"k=choice(1,2)", "argument 7\n", "-m"},
      {"k=1,2", "argument 7\n", "'1,2'"},
      {"k=range(3)", "argument 7\n", "several values"},
      {"k=1,000", "argument 7\n",
       "for one number write 1000 (a ',' does not group digits) or 1.000"},
      {"k=0,001", "argument 7\n", "for one number write 0.001"},
      {"k=1,000", "argument 7\n", "to train once for each value: mtrain train -m"},
      {"k=5,", "argument 7\n", "write 5"},
      {"k.l:5", "argument 7: k.l:5", "write k.l=5"},
      {"5", "argument 7: 5", "write key=value, as in"},
      {"k=[1,]", "argument 7\n", "missing"},
      {"k=int(a)", "argument 7\n", "cannot make a an integer"},
      {"k=int(null)", "argument 7\n", "an integer"},
      {"k=int(${a})", "argument 7\n", "no value yet"},
      {"k=int()", "argument 7\n", "missing"},
      {"k=int(1", "argument 7\n", "')'"},
      {"k=int(1)x", "argument 7\n", "text after"},
      {"k=bool(x)", "argument 7\n", "true or false"},
      {"k=sort(1,2,order=3)", "argument 7\n", "order="},
      {"k=append()", "argument 7\n", "missing"},
      {"k=replace(1)", "argument 7\n", "two values"},
      {"k=insert(-1,2)", "argument 7\n", "0 or more"},
      {"k=[append(1)]", "argument 7\n", "inside a list"},
      {"~k=append(1)", "argument 7", "one value"},
      {"g/k=append(1)", "argument 7", "group"},
      {"k='a'b", "argument 7\n", "closing quote"},
      {"k=['a]", "argument 7\n", "not closed"},
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

TEST_CASE("a hexadecimal number is text, unless the schema wants a number") {
  struct Config {
    int64_t count = 0;
    std::string text;
    void bind(Fields& f) {
      f("count", count, "");
      f("text", text, "");
    }
  };
  Node root = Node::map();
  Report report;
  for (const char* argument : {"count=0x10", "text=0x10"})
    if (auto override = parse_override({argument, 1}, report))
      apply_override(root, *override, report);
  const auto config = read_config<Config>(root);
  CHECK(config.count == 16);
  CHECK(config.text == "0x10");
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
      {"a: [1]", {"a.5=2"}, "there is no item 5: a has 1 item"},
      {"a: {b: []}", {"a.b[0]=2"}, "a.b=append(VALUE)"},
      {"a: null", {"a.b=2"}, "{a: {b: 2}}"},
      {"a: {b: 1}", {"a=5"}, "{a: 5}"},
      {"a: 1", {"a=2", "a=3"}, "{a: 3}"},
      // Edits of the list that is there.
      {"a: [1]", {"a=append(2,3)"}, "{a: [1, 2, 3]}"},
      {"a: [1]", {"a=prepend(2,3)"}, "{a: [2, 3, 1]}"},
      {"a: [1, 2]", {"a=insert(1,x,w)"}, "{a: [1, x, w, 2]}"},
      {"a: [1]", {"a=insert(1,2)"}, "{a: [1, 2]}"},
      {"a: [1]", {"a=insert(2,2)"}, "insert at 0 to 1"},
      {"a: [1, 2, 1]", {"a=remove(1)"}, "{a: [2]}"},
      {"a: [1000]", {"a=remove(1e3)"}, "{a: []}"},
      {"a: [{t: x}, 2]", {"a=remove({t: x})"}, "{a: [2]}"},
      {"a: [1]", {"a=remove(3)"}, "not in the list"},
      {"a: [1, 2]", {"a=replace(2,[3])"}, "{a: [1, [3]]}"},
      {"a: [1]", {"a=replace(2,3)"}, "not in the list"},
      {"a: null", {"a=append(1)"}, "{a: [1]}"},
      {"b: 1", {"a=append(1)"}, "{b: 1, a: [1]}"},
      {"a: 1", {"a=append(1)"}, "is not a list"},
      {"a: ${b}", {"a=append(1)"}, "is computed"},
      {"a: {b: [1]}", {"a.b=append({c: 2})"}, "{a: {b: [1, {c: 2}]}}"},
      {"a: [1]", {"a=append(2)", "a=append(3)"}, "{a: [1, 2, 3]}"},
      // Items named by a key of them.
      {"h: [{m: x, lr: 1}, {m: w, lr: 2}]", {"h[m=w].lr=5"}, "{h: [{m: x, lr: 1}, {m: w, lr: 5}]}"},
      {"h: [{m: x}, {m: w}]", {"~h[m=x]"}, "{h: [{m: w}]}"},
      {"h: [{m: x}, {m: w}]", {"h[m=a b].lr=1"}, "m is one of: x, w"},
      {"h: [{m: x}, {m: x}]", {"h[m=x].lr=1"}, "two items"},
      {"h: [{m: x}]", {"h[m=x].l=[]", "h[m=x].l=append(1)"}, "{h: [{m: x, l: [1]}]}"},
      {"h: {a: 1}", {"h[m=x].lr=1"}, "not a list"},
      {"h: [{m: 'a/b'}]", {"h[m=a/b].v=1"}, "{h: [{m: a/b, v: 1}]}"},
      {"h: [[{m: x}]]", {"h.0[m=x].v=1"}, "{h: [[{m: x, v: 1}]]}"},
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

TEST_CASE("an edit of a list the recipe leaves out starts from its default") {
  auto edited = [](const char* text) {
    Node root = parse_yaml("s: {}");
    Report report;
    auto override = parse_override({text, 1}, report);
    apply_override(root, *override, report, [](const std::string& path) -> std::optional<Node> {
      if (path == "s.betas") return parse_yaml("[1, 2]");
      return std::nullopt;
    });
    return report.ok() ? write_flow(root) : report.text();
  };
  CHECK(edited("s.betas=append(3)") == "{s: {betas: [1, 2, 3]}}");
  CHECK(edited("s.betas.1=5") == "{s: {betas: [1, 5]}}");
  CHECK(edited("s.betas[0]=5") == "{s: {betas: [5, 2]}}");
  CHECK(edited("~s.betas.0") == "{s: {betas: [2]}}");
  CHECK(edited("s.betas=[7]") == "{s: {betas: [7]}}");
  CHECK(edited("s.other=append(3)") == "{s: {other: [3]}}");
}

TEST_CASE("a file of overrides is read line by line") {
  Report report;
  auto source = std::make_shared<Source>(
      SourceKind::file, "o.txt", "# first\n\n  a.b=1  \n+c=[x, 'y # z']\r\n~d\nk=a#b\ne=f(1)\n");
  auto texts = read_override_lines(source, report);
  REQUIRE(report.ok());
  REQUIRE(texts.size() == 5);
  Node root = parse_yaml("{a: {b: 0}, d: 1}", "r.yaml");
  for (const auto& text : texts)
    if (auto override = parse_override(text, report)) apply_override(root, *override, report);
  CHECK(write_flow(root) == "{a: {b: 1}, c: [x, \"y # z\"], k: \"a#b\"}");
  CHECK(root.at("a.b").loc().text() == "o.txt:3:3");
  REQUIRE(report.errors() == 1);
  CHECK(report.diagnostics()[0].where.text() == "o.txt:7:3");

  Report bad;
  auto broken = std::make_shared<Source>(SourceKind::file, "o.txt", "a=1\nb 2\n");
  CHECK(read_override_lines(broken, bad).size() == 1);
  REQUIRE(bad.errors() == 1);
  CHECK(bad.diagnostics()[0].where.text() == "o.txt:2:1");
  Report missing;
  CHECK(read_override_file("/nowhere/o.txt", missing).empty());
  CHECK(missing.errors() == 1);
  Report folder;
  CHECK(read_override_file("/tmp", folder).empty());
  CHECK(folder.errors() == 1);
}

TEST_CASE("ten thousand overrides of one setting are the most of a file, and each is remembered") {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "a=1\nl=append(x)\n";
  Report report;
  Node root = parse_yaml("{a: 0, l: []}");
  for (const auto& line :
       read_override_lines(std::make_shared<Source>(SourceKind::file, "o.txt", text), report))
    if (auto override = parse_override(line, report)) apply_override(root, *override, report);
  CHECK(report.ok());
  CHECK(root.at("l").size() == 5000);
  CHECK(root.at("a").history().size() == 5000);
  Report many;
  read_override_lines(std::make_shared<Source>(SourceKind::file, "o.txt", text + "a=1\n"), many);
  CHECK(many.errors() == 1);
}

TEST_CASE("a raw pair is taken as it is") {
  struct Row {
    const char* value;
  };
  for (const char* value :
       {"1,2", "[a", "'x'", "a=b # c", "null", "", "${x}", "\\${x}", "4k", " a ", "choice(1)"}) {
    CAPTURE(value);
    Report report;
    OverrideText text{"a.b", 3};
    text.raw = value;
    auto override = parse_override(text, report);
    REQUIRE(override.has_value());
    Node root = Node::map();
    apply_override(root, *override, report);
    std::string expected =
        std::string(value).find("${") == std::string::npos ? value : escape_interpolation(value);
    CHECK(root.at("a.b").as_text() == expected);
    CHECK(root.at("a.b").is(NodeKind::string));
    CHECK(root.at("a.b").is_verbatim());
    // As a line of a file it is the same text, or the same null or number.
    Report again;
    auto line = parse_override({override_line(text), 1}, again);
    REQUIRE(line.has_value());
    CHECK(line->value->as_text() == (line->value->is_null() ? "null" : expected));
  }
  Report report;
  OverrideText group{"a/b", 3};
  group.raw = "x";
  CHECK_FALSE(parse_override(group, report).has_value());
}

TEST_CASE("overrides are distinguished from other arguments") {
  for (const char* text :
       {"a=1", "a.b=", "+a=1", "++a.b=2", "~a", "~a=1", "a/b@c=d", "a[0]=1", "a[n=x y].b=1"})
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

TEST_CASE("a key is no longer and leads no deeper than a recipe's can") {
  auto fault = [](const std::string& text) {
    Report report;
    return parse_override({text, 1}, report) ? std::string() : report.text();
  };
  CHECK(fault("k=" + std::string(40000, 'a')) == "");
  CHECK(fault(std::string(4096, 'a') + "=1") == "");
  CHECK(fault(std::string(4097, 'a') + "=1")
            .find("too long for a key: 4097 bytes, the maximum is 4096") != std::string::npos);
  std::string deep = "a";
  for (int i = 1; i < 64; ++i) deep += ".a";
  CHECK(fault(deep + "=1") == "");
  CHECK(fault(deep + ".a=1").find("leads 65 levels, but") != std::string::npos);
  std::string brackets = "a";
  for (int i = 0; i < 64; ++i) brackets += "[0]";
  CHECK(fault("+" + brackets + "=1").find("leads 65 levels, but") != std::string::npos);
}
