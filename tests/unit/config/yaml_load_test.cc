#include "mtrain/config/yaml_load.h"

#include <doctest/doctest.h>
#include <pthread.h>

#include <functional>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/yaml_write.h"
#include "unit/config/config_testing.h"

using namespace mtrain;

namespace {

SourcePtr source_of(std::string text) {
  return std::make_shared<Source>(SourceKind::file, "r.yaml", std::move(text));
}

std::string repeated(std::string_view part, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += part;
  return out;
}

}  // namespace

TEST_CASE("every node knows its kind, text and place") {
  Node root = parse_yaml(
      "# comment\n"
      "model:\n"
      "  type: llama   # which\n"
      "  layers: 32\n"
      "  eps: 1e-5\n"
      "  tied: true\n"
      "  name: \"3\"\n"
      "  empty:\n"
      "  tilde: ~\n"
      "  nä: [1, 'a b', {x: .5}]\n"
      "list:\n"
      "- a\n"
      "- |\n"
      "  block\n",
      "r.yaml");
  CHECK(root.at("model.type").as_string() == "llama");
  CHECK(root.at("model.type").loc().text() == "r.yaml:3:9");
  CHECK_FALSE(root.at("model.type").quoted());
  CHECK(root.at("model.layers").as_int() == 32);
  CHECK(root.at("model.eps").as_double() == 1e-5);
  CHECK(root.at("model.eps").as_text() == "1e-5");
  CHECK(root.at("model.tied").as_bool());
  CHECK(root.at("model.name").is(NodeKind::string));
  CHECK(root.at("model.name").quoted());
  CHECK(root.at("model.empty").is_null());
  CHECK(root.at("model.empty").loc().text() == "r.yaml:8:3");
  CHECK(root.at("model.tilde").loc().text() == "r.yaml:9:10");
  CHECK(root.at("model.nä[2].x").loc().text() == "r.yaml:10:22");  // columns count characters
  CHECK(root.at("list.0").as_string() == "a");
  CHECK(root.at("list[1]").as_string() == "block\n");
  CHECK(root.at("list[1]").quoted());
  CHECK(root.entries()[0].key_where.text() == "r.yaml:2:1");
  CHECK_THROWS_AS(root.at("model.nothing"), Error);
  CHECK_THROWS_AS((void)root.at("model.type").as_int(), Error);
  CHECK(root.find("model.type.deeper") == nullptr);
  CHECK(root.find("list[2]") == nullptr);
}

TEST_CASE("a text of control characters is not taken for a missing value") {
  for (const char* text :
       {R"(["\x01\x02\x01", ???])", R"(["\x01\x01\x01", ???])", R"(["\u0001\u0001\u0001", ???])",
        R"(["\U00000001\x01\u0001", "a\x02", ???])"}) {
    CAPTURE(text);
    Node list = parse_yaml(text);
    CHECK_FALSE(list.items().front().is_missing());
    CHECK(list.items().front().as_text()[0] == 1);
    CHECK(list.items().front().as_text().size() == 3);
    CHECK(list.items().back().is_missing());
  }
}

TEST_CASE("escapes of characters above ASCII are those characters") {
  Node root = parse_yaml("a: \"x\\N\\_\\L\\P\\x85\\u00a0\\U0001F600é\\N\"\n");
  const std::string wanted = "x\u0085\u00a0\u2028\u2029\u0085\u00a0\U0001F600é\u0085";
  CHECK(root.find("a")->as_text() == wanted);
  CHECK(parse_yaml(write_yaml(root)).same_value(root));
}

TEST_CASE("aliases are copies") {
  Node root = parse_yaml("a: &x {k: [1]}\nb: *x\nc: [*x, *x]\n");
  root.set("b.k", Node::integer(7));
  CHECK(root.at("a.k[0]").as_int() == 1);
  CHECK(root.at("c[1].k[0]").as_int() == 1);
  CHECK(root.at("b.k").as_int() == 7);
}

TEST_CASE("a byte-order mark and Windows line ends do no harm") {
  Node root = parse_yaml(
      "\xEF\xBB\xBF"
      "a: 1\r\nb:\r\n  - x\r\n",
      "r.yaml");
  CHECK(root.at("a").as_int() == 1);
  CHECK(root.at("a").loc().text() == "r.yaml:1:4");
  CHECK(root.at("b[0]").as_string() == "x");
}

TEST_CASE("core tags are applied") {
  Node root =
      parse_yaml("a: !!str 3\nb: !!int 3\nc: !!float 3\nd: !!map {}\ne: !!seq []\nf: ! 3\n");
  CHECK(root.at("a").is(NodeKind::string));
  CHECK(root.at("b").as_int() == 3);
  CHECK(root.at("c").as_double() == 3.0);
  CHECK(root.at("f").is(NodeKind::string));
}

TEST_CASE("what is not a recipe is refused, with its place") {
  struct Row {
    std::string text;
    const char* code;
    const char* place;
    const char* words;
  };
  const Row rows[] = {
      {"a: 1\nb: 2\na: 3\n", "yaml-duplicate-key", "r.yaml:3:1", "r.yaml:1:1"},
      {"a: {x: 1, x: 2}\n", "yaml-duplicate-key", "r.yaml:1:11", "twice"},
      {"a: 1\n\"a\": 2\n", "yaml-duplicate-key", "r.yaml:2:1", "twice"},
      {"base: &b {x: 1}\nm:\n  <<: *b\n", "yaml-merge-key", "r.yaml:3:3", "<<"},
      {"a: !!python/object:os.system x\n", "yaml-tag", "r.yaml:1:4", "!!python/object:os.system"},
      {"a: !!python/object/apply:os.system ['rm']\n", "yaml-tag", "r.yaml:1:4", "unknown tag"},
      {"a: !mine x\n", "yaml-tag", "r.yaml:1:4", "!mine"},
      {"a: !!binary aGk=\n", "yaml-tag", "r.yaml:1:4", "!!binary"},
      {"a: !!set {x}\n", "yaml-tag", "r.yaml:1:4", "!!set"},
      {"a: !!int hello\n", "yaml-tag", "r.yaml:1:4", "does not fit"},
      {"!!int 1: x\n", "yaml-key", "r.yaml:1:1", "tag"},
      {"a: 1\n---\nb: 2\n", "yaml-documents", "r.yaml:2:1", "second document"},
      {"a: 1\n...\n---\n", "yaml-documents", "r.yaml:3:1", "second document"},
      {"a: &x [1, *x]\n", "yaml-cycle", "r.yaml:1:11", "inside"},
      {"a: &x {b: {c: *x}}\n", "yaml-cycle", "r.yaml:1:15", "inside"},
      {"a: *nothing\n", "yaml-syntax", "r.yaml:1:4", "anchor"},
      {"? [1, 2]\n: 3\n", "yaml-key", "r.yaml:1:3", "list or map as a key"},
      {"a: &k x\n*k : 1\n", "yaml-key", "r.yaml:2:1", "alias"},
      {"~: 1\n", "yaml-key", "r.yaml:1:1", "empty key"},
      {": 1\n", "yaml-key", "r.yaml:1:1", "empty key"},
      {"a: b: c\n", "yaml-syntax", "r.yaml:1:4", "':'"},
      {"a:\n\t b: 1\n", "yaml-syntax", "r.yaml:2:1", "tab"},
      {"a: [1, 2\nb: 3\n", "yaml-syntax", "r.yaml:", "'['"},
      {"a: {x: 1\n", "yaml-syntax", "r.yaml:", "'{'"},
      {"a: \"open\n", "yaml-syntax", "r.yaml:", "closing"},
      {"a: 1\n  b: 2\n", "yaml-syntax", "r.yaml:2:", ""},
      {"- a\nb: 1\n", "yaml-syntax", "r.yaml:2:1", ""},
      {"a: @x\n", "yaml-syntax", "r.yaml:1:4", "quote"},
      {"a: \"\\q\"\n", "yaml-syntax", "r.yaml:1:", "escape"},
      {"a: \"x\" y\n", "yaml-syntax", "r.yaml:1:8", "after the end of a value"},
      {"a: [1, 2]]\n", "yaml-syntax", "r.yaml:1:10", "opening"},
      {"a: }\n", "yaml-syntax", "r.yaml:1:4", ""},
      {"a: caf\xE9\n", "yaml-encoding", "r.yaml:1:7", "0xe9"},
      {"a: \xC0\xAF\n", "yaml-encoding", "r.yaml:1:4", "0xc0"},
      {std::string("a: \0b\n", 7), "yaml-encoding", "r.yaml:1:4", "0x00"},
      {"a: \x1b[31m\n", "yaml-encoding", "r.yaml:1:4", "0x1b"},
      {"a: \x04\n", "yaml-encoding", "r.yaml:1:4", "0x04"},
      {"a: 1\rb: 2\n", "yaml-encoding", "r.yaml:1:5", "0x0d"},
      {"a: \"x\\0y\"\n", "yaml-encoding", "r.yaml:1:4", "NUL"},
      {"\xFF\xFE" + std::string("a\0:\0", 4), "yaml-encoding", "r.yaml:1:1", "UTF-16"},
      {std::string("\0a\0:", 4), "yaml-encoding", "r.yaml:1:1", "UTF-16"},
      {std::string("\x7f"
                   "ELF\x02\x01\x01\0\0\0",
                   10),
       "yaml-encoding", "r.yaml", "binary"},
      {"a: x // y\n", "yaml-syntax", "r.yaml:1:6", "'//' does not start a comment"},
      {"a: // y\n", "yaml-syntax", "r.yaml:1:4", "'//' does not start a comment"},
      {"a:\n  b c\n  d // y\n", "yaml-syntax", "r.yaml:3:5", "'//' does not start a comment"},
      {"a: \u201cx\u201d\n", "yaml-syntax", "r.yaml:1:4", "write \"x\""},
      {"\u2018a\u2019: x\n", "yaml-syntax", "r.yaml:1:1", "write \"a\""},
      {"a: x\u00a0y\n", "yaml-syntax", "r.yaml:1:5", "(U+00A0)"},
      {"\u3000a: x\n", "yaml-syntax", "r.yaml:1:1", "(U+3000)"},
      {"a: 'it's'\n", "yaml-syntax", "r.yaml:1:8", "twice"},
      {"a: *.bin\n", "yaml-syntax", "r.yaml:1:4", "quote the text"},
      {"a: 1\n...\nb: 2\n", "yaml-syntax", "r.yaml:2:1", "ends the recipe"},
      {"a: x\xE2\x80\xAEy\n", "yaml-encoding", "r.yaml:1:5", "\\u202e"},
      {"# \xE2\x81\xA6 comment\na: 1\n", "yaml-encoding", "r.yaml:1:3", "\\u2066"},
      {"a\xE2\x80\x8B: 1\n", "yaml-encoding", "r.yaml:1:2", "\\u200b"},
      {"a: |\n  x\xE2\x80\xAEy\n", "yaml-encoding", "r.yaml:2:4", "\\u202e"},
      {repeated("[", 65) + repeated("]", 65), "yaml-limit", "r.yaml:1:65", "64"},
      {repeated("{a: ", 65) + "1" + repeated("}", 65), "yaml-limit", "r.yaml:1:257", "64"},
      {repeated("[", 100000), "yaml-limit", "r.yaml:1:", "64"},
      {repeated("- ", 100000), "yaml-limit", "r.yaml:1:", "64"},
      {"a: &x 1\nb: [" + repeated("*x, ", 101) + "1]\n", "yaml-limit", "r.yaml:2:", "100 aliases"},
      {"a: [" + repeated("1,", 100001) + "]\n", "yaml-limit", "r.yaml:1:", "values"},
      {"a: \"" + std::string(1 << 20, 'x') + "\"\n", "yaml-limit", "r.yaml", "1.0 MiB"},
      {"\"" + std::string(1500, 'k') + "\": 1\n", "yaml-", "r.yaml:1:", ""},
      {"? \"" + std::string(1500, 'k') + "\"\n: 1\n", "yaml-key", "r.yaml:1:3", "longer"},
  };
  for (const auto& row : rows) {
    std::string shown = printable(row.text, 60);
    CAPTURE(shown);
    Report report;
    CHECK_FALSE(load_yaml(source_of(row.text), report).has_value());
    REQUIRE(report.errors() >= 1);
    std::string text = report.text();
    CAPTURE(text);
    CHECK(report.diagnostics()[0].code.starts_with(row.code));
    CHECK(text.find(std::string("--> ") + row.place) != std::string::npos);
    CHECK(text.find(row.words) != std::string::npos);
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.find("bad file") == std::string::npos);
  }
}

TEST_CASE("invisible characters are allowed inside quoted strings") {
  Node root =
      parse_yaml("a: \"x\xE2\x80\xAEy\"\nb: 'it''s \xE2\x80\x8F'\nc: [\"\\\"\xE2\x80\xAE\"]\n");
  CHECK(root.at("a").as_string() == "x\xE2\x80\xAEy");
  CHECK(write_yaml(root).find("\\u202e") != std::string::npos);
}

TEST_CASE("what is refused without quotes is written with them") {
  for (const char* text : {"x // y", "// x", "\u201cx\u201d", "x\u00a0y", "None", "<<<<<<< x",
                           "=======", "\u2013 x", "```"}) {
    CAPTURE(text);
    Node root = Node::map();
    root.append("a", {}, Node::quoted_string(text));
    CHECK(write_yaml(root).find("\"") != std::string::npos);
    CHECK(parse_yaml(write_yaml(root)).at("a").as_text() == text);
  }
  Node root = parse_yaml(
      "a: \"x // y\"\nb: s3://x//y\nc: //host/x\nd: |\n  x // y\u00a0z\ne: ${= 5 // 2}\n");
  CHECK(root.at("b").as_text() == "s3://x//y");
  CHECK(root.at("c").as_text() == "//host/x");
}

TEST_CASE("an alias bomb is refused") {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    std::string before = cat("*a", i - 1);
    bomb += cat("a", i, ": &a", i, " [", before);
    for (int k = 0; k < 8; ++k) bomb += ", " + before;
    bomb += "]\n";
  }
  Report report;
  CHECK_FALSE(load_yaml(source_of(bomb), report).has_value());
  CHECK(report.diagnostics()[0].code == "yaml-limit");
  CHECK(report.text().find("aliases are expanded") != std::string::npos);

  // Few values, but each a long text: 2500 copies of 100 kB.
  std::string texts = "a: &a " + std::string(100000, 'x') + "\nb: &b [*a";
  for (int i = 1; i < 50; ++i) texts += ", *a";
  texts += "]\nc: [*b";
  for (int i = 1; i < 50; ++i) texts += ", *b";
  Report long_texts;
  CHECK_FALSE(load_yaml(source_of(texts + "]\n"), long_texts).has_value());
  REQUIRE(long_texts.errors() == 1);
  CHECK(long_texts.text().find("bytes of text once the aliases are expanded") != std::string::npos);
}

TEST_CASE("hostile files of a mebibyte give short error messages") {
  auto fill = [](std::string_view part) {
    return repeated(part, static_cast<int>((size_t{1} << 20) / part.size() - 8));
  };
  const std::pair<std::string, std::string> rows[] = {
      {"plain words", "a: " + fill("x ")},
      {"lines of a plain scalar", "a:\n" + fill(" x\n")},
      {"open quotes", "a: '" + fill("''")},
      {"comments", fill("#\n") + "a: 1\n"},
      {"question marks", fill("? ")},
      {"flow keys", "{" + fill("a,")},
      {"colons", fill("a:\n")},
      {"anchors", fill("&a ")},
      {"tags", fill("! ")},
      {"blanks", fill(" ") + "a: 1\n"},
      {"block text", "a: |\n" + fill(" x\n")},
      {"folded text", "a: >\n" + fill(" x\n\n")},
      {"deep blocks",
       [] {
         std::string s;
         for (int i = 0; i < 1400; ++i) s += std::string(static_cast<size_t>(i), ' ') + "a:\n";
         return s;
       }()},
      {"escapes", "a: \"" + fill("\\x41") + "\"\n"},
      {"percent", fill("%YAML 1.2\n")},
      {"document ends", fill("...\n")},
      {"many small strings", fill("- 'a'\n")},
      {"long key", fill("k") + ": 1\n"},
      {"bidi", fill("\xE2\x80\xAE")},
  };
  for (const auto& [what, text] : rows) {
    CAPTURE(what);
    Report report;
    load_yaml(source_of(text), report);
    for (const auto& fault : report.diagnostics()) CHECK(render(fault).size() < 2000);
  }
}

TEST_CASE("the deepest allowed recipe loads on a small stack") {
  std::string text = repeated("[", 64) + repeated("]", 64);
  Report report;
  auto work = [&] {
    auto root = load_yaml(source_of(text), report);
    REQUIRE(root.has_value());
    CHECK(write_flow(*root) == text);
    Node copy = *root;
    CHECK(copy.same_value(*root));
  };
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kSmallStack);
  pthread_t thread;
  std::function<void()> call = work;
  REQUIRE(pthread_create(
              &thread, &attributes,
              [](void* f) -> void* {
                (*static_cast<std::function<void()>*>(f))();
                return nullptr;
              },
              &call) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST_CASE("missing and unreadable files are errors of the report") {
  Report report;
  CHECK_FALSE(load_yaml_file("/nonexistent/recipe.yaml", report).has_value());
  CHECK_FALSE(load_yaml_file("/", report).has_value());
  CHECK(report.errors() == 2);
  CHECK(report.text().find("/nonexistent/recipe.yaml") != std::string::npos);
}

TEST_CASE("twenty thousand keys load") {  // how the work grows: tests/growth
  std::string text = "m:\n";
  for (int i = 0; i < 20000; ++i) text += cat("  key_", i, ": ", i, "\n");
  Report report;
  auto root = load_yaml(source_of(text), report);
  REQUIRE(root.has_value());
  CHECK(root->at("m.key_19999").as_int() == 19999);
}

TEST_CASE("what is written loads again as the same tree") {
  const char* texts[] = {
      "a: 1\nb: 2e-5\nc: true\nd: null\ne: ~\nf: .inf\ng: -0\nh: 0x1F\n",
      "a: []\nb: {}\nc: [[], {}, [[1]]]\nd:\n- a: 1\n  b: [1, 2]\n- - 1\n  - {x: y}\n",
      "a: \"\"\nb: ''\nc: ' x '\nd: \"line\\nbreak\\ttab\"\ne: |\n  block\n  text\n",
      "\"\": 1\n\"a b\": 2\n\"a: b\": 3\n'#': 4\n\"<<\": 5\n\"~\": 6\n\"1\": 7\n\"-\": 8\n\"a.b\": "
      "9\n",
      "a: [x, 'y, z', \"[\", '{', \"}\", ':', '- ', '# no', 'a #b', 'a: b', '%', '@x', '`', '!t', "
      "'&a', "
      "'*a', '|', '>']\n",
      "a: ['yes', 'no', 'on', 'true', 'null', '~', '1', '1.5', '1e5', '017', '0o17', '0b1', "
      "'1_000', '1:30', "
      "'2024-01-01', '.5', '+1', '-1', '.inf', '=', '<<', '---', '...']\n",
      "a: ${b.c}\nb: \"${= 4 * ${x} }\"\nc: ???\nd: /data/x-1.bin\ne: 'C:\\x'\nf: \"\\u202e \\x1b "
      "\\x7f "
      "\\x85 \\u2028\"\ng: naïve 你\n",
  };
  for (const char* text : texts) {
    CAPTURE(text);
    Node before = parse_yaml(text);
    std::string written = write_yaml(before);
    CAPTURE(written);
    CHECK(parse_yaml(written).same_value(before));
    CHECK(parse_yaml(write_flow(before)).same_value(before));
    CHECK(write_yaml(parse_yaml(written)) == written);
  }
}

TEST_CASE("every byte and every short word survives writing") {
  Node list = Node::list();
  for (int c = 1; c < 0x80; ++c)
    for (const char* around : {"", "a", " "})
      list.push(Node::string(around + std::string(1, static_cast<char>(c)) + around));
  const std::string alphabet = "01eE.+-_:xob~ny#, ";
  for (char a : alphabet)
    for (char b : alphabet)
      for (char c : alphabet) list.push(Node::string({a, b, c}));
  list.push(Node::string(std::string(5000, 'x')));
  list.push(Node::string(repeated("word ", 500)));
  Node root = Node::map();
  root.append("list", {}, list);
  CHECK(parse_yaml(write_yaml(root)).same_value(root));
  CHECK(parse_yaml(write_flow(root)).same_value(root));
  Node keys = Node::map();
  for (size_t i = 0; i < list.size(); ++i)
    if (!keys.get(list.items()[i].as_text()) && list.items()[i].as_text().size() < 1000)
      keys.append(list.items()[i].as_text(), {}, Node::integer(1));
  CHECK(parse_yaml(write_yaml(keys)).same_value(keys));
  CHECK(parse_yaml(write_flow(keys)).same_value(keys));
}

TEST_CASE("strings that other readers mistake are quoted, plain words are not") {
  for (const char* text : {"yes", "No", "on", "1e-4", "1_000", "017", "0o17", "1:30", "2024-01-01",
                           "null", "", "~", "true", "1.5", "-", "a: b", "x #y", "=", "1e5"})
    CHECK_MESSAGE(write_string(text) == cat('"', text, '"'), text);
  for (const char* text : {"llama", "adamw", "/data/x.bin", "a-b_c", "bf16", "1b", "out/run-1",
                           "a:b", "-x", "runs/3", "s3://b/k", "v1.2.3"})
    CHECK_MESSAGE(write_string(text) == text, text);
}

TEST_CASE("a path that leads nowhere is answered with the nearest one") {
  const Node root = parse_yaml("optimizer: {lr: 1, type: adamw}\ntrain: {steps: 1}\n");
  auto hint = [&](const char* path) {
    try {
      root.at(path);
      return std::string();
    } catch (const Error& fault) {
      return fault.hint();
    }
  };
  CHECK(hint("optimizer.lrr") == "did you mean optimizer.lr?");
  CHECK(hint("optimzer") == "did you mean optimizer?");
  CHECK(hint("train.stesp") == "did you mean train.steps?");
}

TEST_CASE("paths are parsed and joined") {
  using Parts = std::vector<std::string>;
  CHECK(parse_path("a.b[0].c\\.d") == Parts{"a", "b", "0", "c.d"});
  CHECK(parse_path("a[x]") == Parts{"a", "x"});
  CHECK(parse_path("[a].b") == Parts{"a", "b"});
  CHECK(parse_path("") == Parts{});
  for (const char* bad : {"a.", ".a", "a..b", "a[", "a[]", "a]b", "a[0]b"})
    CHECK_MESSAGE(!parse_path(bad).has_value(), bad);
  CHECK(join_path("a", "b.c") == "a.b\\.c");
  CHECK(parse_path(join_path("x", "a.[b]\\"))->back() == "a.[b]\\");
}
