#include "mtrain/config/fields.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "has.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/schema.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_write.h"

using namespace mtrain;
using testing::has;

namespace {

struct Rope {
  float theta = 1e4f;
  std::string scaling = "none";
  void bind(Fields& f) {
    f("theta", theta, "base of the angles").exclusive_min(0).renamed_from({"rotary_base"});
    f("scaling", scaling, "how positions beyond the trained ones are treated")
        .one_of({"none", "linear", "yarn"});
  }
};

struct Everything {
  bool flag = false;
  int64_t count = 4;
  int small = 2;
  double rate = 0.5;
  float eps = 1e-5f;
  std::string text = "word";
  std::vector<int64_t> counts = {1, 2};
  std::vector<double> rates = {0.9, 0.95};
  std::vector<std::string> words = {"a", "yes"};
  std::optional<int64_t> maybe_count;
  std::optional<double> maybe_rate = 1.5;
  std::optional<std::string> maybe_text;
  Node tree;
  Rope rope;
  void bind(Fields& f) {
    f.objective("masked token");
    f.device_memory();
    f.reuses_norm_outputs();
    f("flag", flag, "a flag");
    f("count", count, "a count").min(1).max(1e9).renamed_from({"num_things"});
    f("small", small, "an int").fact(Fact::kv_heads);
    f("rate", rate, "a rate").min(0).exclusive_max(1).unit("per step");
    f("eps", eps, "a float");
    f("text", text, "a text");
    f("counts", counts, "counts").min(0);
    f("rates", rates, "rates").size(2);
    f("words", words, "words");
    f("maybe_count", maybe_count, "optional count").min(1);
    f("maybe_rate", maybe_rate, "optional rate");
    f("maybe_text", maybe_text, "optional text");
    f("tree", tree, "anything");
    f.section("rope", rope);
  }
};

struct Needy {
  std::string path;
  void bind(Fields& f) { f("path", path, "training data").required().example("data/train.jsonl"); }
};

struct Optional {
  std::string kind;
  void bind(Fields& f) { f("kind", kind, "a kind, or none").one_of({"", "round", "square"}); }
};

template <class C>
std::string fault(const std::string& yaml) {
  try {
    read_config<C>(parse_yaml(yaml, "r.yaml"));
    return {};
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::config);
    return error.what();
  }
}

}  // namespace

TEST_CASE("every type is read") {
  auto c =
      read_config<Everything>(parse_yaml("flag: True\ncount: 1e6\nsmall: -16\nrate: 0\neps: "
                                         "2e-6\ntext: 123\ncounts: [3, 4e0]\nrates: [1, .5]\n"
                                         "words: [x, 1, true]\nmaybe_count: 7\nmaybe_rate: "
                                         "null\nmaybe_text: ~x\ntree: {a: [1]}\nrope: {theta: "
                                         "5e5, scaling: yarn}\n" +
                                         std::string()));
  CHECK(c.flag);
  CHECK(c.count == 1000000);
  CHECK(c.rate == 0.0);
  CHECK(c.eps == 2e-6f);
  CHECK(c.text == "123");
  CHECK(c.counts == std::vector<int64_t>{3, 4});
  CHECK(c.rates == std::vector<double>{1, 0.5});
  CHECK(c.words == std::vector<std::string>{"x", "1", "true"});
  CHECK(c.maybe_count == 7);
  CHECK_FALSE(c.maybe_rate.has_value());
  CHECK(c.maybe_text == "~x");
  CHECK(c.tree.at("a[0]").as_int() == 1);
  CHECK(c.rope.theta == 5e5f);
  CHECK(c.rope.scaling == "yarn");
}

TEST_CASE("an empty section is all defaults") {
  for (const char* yaml : {"", "{}", "rope:\n"}) {
    auto c = read_config<Everything>(parse_yaml(yaml));
    CHECK(c.count == 4);
    CHECK(c.eps == 1e-5f);
    CHECK(c.words == std::vector<std::string>{"a", "yes"});
    CHECK_FALSE(c.maybe_count.has_value());
    CHECK(c.maybe_rate == 1.5);
    CHECK(c.tree.is_null());
    CHECK(c.rope.theta == 1e4f);
  }
}

TEST_CASE("a value of the wrong kind is refused with its place and its fix") {
  struct Row {
    const char* yaml;
    const char* code;
    const char* words;
  };
  const Row rows[] = {
      {"flag: yes", "wrong-type", "write true"},
      {"flag: on", "wrong-type", "write true"},
      {"flag: No", "wrong-type", "write false"},
      {"flag: 1", "wrong-type", "write true"},
      {"flag: \"true\"", "wrong-type", "without quotes"},
      {"flag: maybe", "wrong-type", "wanted true or false, got the text maybe"},
      {"flag: null", "wrong-type", "got null"},
      {"flag: [true]", "wrong-type", "a list"},
      {"count: \"3\"", "wrong-type", "write 3 without quotes"},
      {"count: 1_000", "wrong-type", "write 1000"},
      {"count: 0o17", "wrong-type", "write 15"},
      {"count: 017", "wrong-type", "write 17 (or 15"},
      {"count: 0b11", "wrong-type", "write 3"},
      {"count: 1:30", "wrong-type", "write 90"},
      {"count: 1.5", "wrong-type", "a number 1.5"},
      {"count: 3.0", "wrong-type", "write 3"},
      {"count: 1e-2", "wrong-type", "wanted an integer"},
      {"count: true", "wrong-type", "a boolean true"},
      {"count: many", "wrong-type", "the text many"},
      {"count: {a: 1}", "wrong-type", "a map"},
      {"count:", "wrong-type", "remove the key"},
      {"count: 0", "out-of-range", "integer >= 1 and <= 1000000000"},
      {"count: -5", "out-of-range", "got -5"},
      {"count: 99999999999999999999", "out-of-range", "64 bits"},
      {"count: 9223372036854775808", "out-of-range", "64 bits"},
      {"small: 2147483648", "out-of-range", "32 bits"},
      {"small: -3e9", "out-of-range", "32 bits"},
      {"rate: 1", "out-of-range", ">= 0 and < 1"},
      {"rate: -1e-9", "out-of-range", "per step"},
      {"rate: .nan", "out-of-range", "not finite"},
      {"rate: .inf", "out-of-range", "not finite"},
      {"rate: 1e400", "out-of-range", "64-bit"},
      {"rate: \"0.5\"", "wrong-type", "without quotes"},
      {"rate: 0,5", "wrong-type", "decimal point"},
      {"rate: fast", "wrong-type", "wanted a number"},
      {"eps: 1e39", "out-of-range", "32-bit"},
      {"text: [a]", "wrong-type", "wanted a string"},
      {"text:", "wrong-type", "wanted string"},
      {"counts: 3", "wrong-type", "write [3]"},
      {"counts: [1, x]", "wrong-type", "counts[1]"},
      {"counts: [1, -1]", "out-of-range", "counts[1]"},
      {"counts: [1, [2]]", "wrong-type", "counts[1]"},
      {"rates: [1]", "list-size", "wanted 2 values, got 1"},
      {"words: [a, null]", "wrong-type", "words[1]"},
      {"words: {a: 1}", "wrong-type", "list of strings"},
      {"maybe_count: 0", "out-of-range", ">= 1"},
      {"text: ???", "missing", "is required"},
      {"rope: 3", "wrong-type", "a map of settings"},
      {"rope: {theta: 0}", "out-of-range", "rope.theta"},
      {"rope: {scaling: yarm}", "bad-choice", "did you mean yarn"},
      {"rope: {thet: 1}", "unknown-key", "did you mean rope.theta"},
      {"cout: 3", "unknown-key", "did you mean count"},
      {"rope.theta: 3", "unknown-key", "nested maps"},
      {"theta: 3", "unknown-key", "rope.theta"},
      {"{count:3}", "unknown-key", "write `count: 3`"},
      {"zzzzzzzz: 3", "unknown-key", "no such setting"},
      {"[1]", "wrong-type", "a map of settings"},
      {"count: 3\nnum_things: 4", "conflict", "keep one"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.yaml);
    std::string text = fault<Everything>(row.yaml);
    CAPTURE(text);
    CHECK(has(text, cat("error[", row.code, "]")));
    CHECK(has(text, row.words));
    CHECK(has(text, "--> r.yaml:"));
    CHECK(has(text, "1 error"));
    size_t lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    CHECK(lines <= 6);
  }
}

TEST_CASE("a value as another language, country or habit writes it is answered with ours") {
  struct Row {
    const char* yaml;
    const char* help;  // a part of it; empty: the value is right
  };
  const Row rows[] = {
      {"count: 0x10", ""},
      {"count: +5", ""},
      {"count: 1e3", ""},
      {"count: 1,000", "write 1000 (a ',' does not group digits)"},
      {"count: 1 000", "write 1000 (a ' ' does not group digits)"},
      {"count: 1'000'000", "write 1000000 (a ''' does not group digits)"},
      {"count: 1.000", "write 1 or 1000 (a '.' does not group digits)"},
      {"count: 0,001",
       "write an integer: a ',' is neither a decimal point nor a separator of digits"},
      {"count: 2,", "write 2 (without the ',' after it)"},
      {"count: 2;", "write 2 (without the ';' after it)"},
      {"count: 1 k", "write 1k (without the space)"},
      {"count: = 5", "write 5 (without the '=' before it)"},
      {"count: [5]", "write 5 without the brackets"},
      {"count: 50%", "this setting cannot be a share of another one"},
      {"count: 2 * 8", "write \"${= 2 * 8}\" to compute it"},
      {"count: $COUNT", "write \"${oc.env:COUNT}\" for a variable of the environment"},
      {"count: 5#five",
       "write 5 ('#five' is a part of the value: in YAML a comment starts with ' #'"},
      {"count: 1_000#c",
       "write 1000 ('#c' is a part of the value: in YAML a comment starts with ' #'"},
      {"count: |\n  5\n", "write 5"},
      {"count: \uff11\uff10", "write 10"},
      {"maybe_count: None", "write null"},
      {"maybe_text: None", "write null, or \"None\" in quotes for the text"},
      {"maybe_text: \"None\"", ""},
      {"text: None", ""},
      {"rate: .5", ""},
      {"rate: 0,5", "write 0.5 (the decimal point is a '.')"},
      {"rate: 50%", "write 0.5 (this setting needs a number, not a percentage)"},
      {"rate: 5e-4#c",
       "write 5e-4 ('#c' is a part of the value: in YAML a comment starts with ' #'"},
      {"rate: 5e\u20134", "write 5e-4 ('\u2013' is not the character '-')"},
      {"rate: 1e -3", "write 1e-3 (without the space)"},
      {"maybe_rate: 1,000",
       "write 1000 (a ',' does not group digits) or 1.000 (the decimal point is a '.')"},
      {"maybe_rate: 1.000,5", "write 1000.5 (a '.' does not group digits)"},
      {"flag: true#c",
       "write true ('#c' is a part of the value: in YAML a comment starts with ' #'"},
      {"flag: true,", "write true (without the ',' after it)"},
      {"counts: 1, 2", "write [1, 2]"},
      {"counts: (1, 2)", "write [1, 2]"},
      {"counts: 1 2", "write [1, 2]"},
      {"counts: [1 2, 3]", "write 1, 2"},
      {"words: [a b]", ""},
      {"text: x,", "write x without it, or \"x,\" in quotes if it belongs to the text"},
      {"text: \"x,\"", ""},
      {"rope: {scaling: Yarn}", "write yarn"},
      {"rope: {scaling: default}", "write none (default is its name in transformers)"},
      {"{count: 1,000}", "in { } a ',' begins the next setting"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.yaml);
    const std::string text = fault<Everything>(row.yaml);
    CAPTURE(text);
    if (row.help[0] == 0)
      CHECK(text.empty());
    else
      CHECK(has(text, row.help));
  }
  CHECK(has(fault<Everything>("count: on"),
            "note: a count"));  // what it is, where nothing better is known
}

TEST_CASE("a required setting is asked for with an example") {
  std::string text = fault<Needy>("");
  CHECK(has(text, "error[missing] path: is required (string)"));
  CHECK(has(text, "training data"));
  CHECK(has(text, "path=data/train.jsonl"));
  CHECK(has(fault<Needy>("path: ???"), "r.yaml:1:7"));
  CHECK(fault<Needy>("path: x").empty());
}

TEST_CASE("an empty choice is shown as two quotes, which are what a recipe says for it") {
  CHECK(has(fault<Optional>("kind: oval"), "wanted one of \"\", round, square; got oval"));
  CHECK(describe(schema_of<Optional>("o", "").fields.at(0)) ==
        "string, one of \"\", round, square");
  CHECK(read_config<Optional>(parse_yaml("kind: \"\"")).kind.empty());
}

TEST_CASE("former names are accepted with a warning") {
  for (const char* yaml : {"num_things: 9", "rotary_base: 2", "rope: {rotary_base: 2}"}) {
    CAPTURE(yaml);
    Report report;
    Node values = validate(parse_yaml(yaml, "r.yaml"), schema_of<Everything>("e", ""), report);
    CHECK(report.ok());
    CHECK(report.warnings() == 1);
    CHECK(has(report.text(), "warning[renamed]"));
    CHECK((values.at("count").as_int() == 9 || values.at("rope.theta").as_double() == 2));
  }
}

TEST_CASE("all faults of a section are found at once") {
  std::string text =
      fault<Everything>("flag: yes\ncount: x\nrate: 2\nropp: {theta: 1}\nrates: []\n");
  CHECK(has(text, "5 errors"));
}

TEST_CASE("only the first faults are shown, all are counted") {
  std::string yaml;
  for (int i = 0; i < 50; ++i) yaml += cat("unknown_", i, ": 1\n");
  std::string text = fault<Everything>(yaml);
  CHECK(has(text, "unknown_19"));
  CHECK_FALSE(has(text, "unknown_20:"));
  CHECK(has(text, "… and 30 more; `mtrain check --json` lists all\n50 errors"));
}

TEST_CASE("a schema survives its text form") {
  Schema before = schema_of<Everything>("everything", "all types");
  std::string text = schema_to_json(before);
  Schema after = schema_from_json(text);
  CHECK(schema_to_json(after) == text);
  CHECK(after.objective == "masked token");
  CHECK(after.device_memory);
  CHECK(after.reuses_norm_outputs);
  CHECK(schema_of<Rope>("rope", "").objective.empty());
  CHECK_FALSE(schema_from_json(schema_to_json(schema_of<Rope>("rope", ""))).device_memory);
  CHECK_FALSE(schema_from_json(schema_to_json(schema_of<Rope>("rope", ""))).reuses_norm_outputs);
  REQUIRE(after.fields.size() == before.fields.size());
  for (size_t i = 0; i < before.fields.size(); ++i) {
    const FieldSpec &a = before.fields[i], &b = after.fields[i];
    CHECK(a.path == b.path);
    CHECK(a.type == b.type);
    CHECK(a.fact == b.fact);
    CHECK((a.fact == Fact::kv_heads) == (a.path == "small"));
    CHECK(a.default_value == b.default_value);
    CHECK(a.min == b.min);
    CHECK(a.max == b.max);
    CHECK(a.exclusive_max == b.exclusive_max);
    CHECK(a.choices == b.choices);
    CHECK(a.renamed_from == b.renamed_from);
    CHECK(a.list_size == b.list_size);
    CHECK(a.bits == b.bits);
    CHECK(a.nullable == b.nullable);
    CHECK(a.required == b.required);
  }
  Report report;
  Node values = validate(Node(), after, report);
  CHECK(report.ok());
  CHECK(values.at("words").same_value(parse_yaml("[a, \"yes\"]")));
}

TEST_CASE("what is no schema text is refused") {
  std::string good = schema_to_json(schema_of<Rope>("rope", ""));
  CHECK_NOTHROW(schema_from_json(good));
  const char* rows[] = {
      "",
      "{",
      "[]",
      "null",
      "{\"format\":1}",
      "{\"format\":2,\"name\":\"x\",\"fields\":[]}",
      "{\"format\":1,\"name\":3,\"fields\":[]}",
      "{\"format\":1,\"name\":\"x\",\"fields\":[{}]}",
      "{\"format\":1,\"name\":\"x\",\"fields\":[{\"path\":\"a\",\"type\":\"blob\"}]}",
      "{\"format\":1,\"name\":\"x\",\"fields\":[{\"path\":\"a..b\",\"type\":\"integer\"}]}",
      R"({"format":1,"name":"x","fields":[{"path":"a","type":"integer","default":"["}]})",
      "{\"format\":1,\"name\":\"x\",\"fields\":3}"};
  for (const char* row : rows) {
    CAPTURE(row);
    CHECK_THROWS_AS(schema_from_json(row), Error);
  }
  for (size_t bytes = 0; bytes < good.size(); bytes += 7) {
    CHECK_THROWS_AS(schema_from_json(good.substr(0, bytes)), Error);
  }
}

TEST_CASE("the JSON Schema is draft-07 with types, ranges, defaults and closed sections") {
  auto schema =
      nlohmann::json::parse(json_schema_of(schema_of<Everything>("everything", "all types")));
  CHECK(schema["$schema"] == "http://json-schema.org/draft-07/schema#");
  CHECK(schema["additionalProperties"] == false);
  CHECK(schema["properties"]["count"]["default"] == 4);
  CHECK(schema["properties"]["count"]["anyOf"][0]["minimum"] == 1);
  CHECK(schema["properties"]["rates"]["anyOf"][0]["minItems"] == 2);
  CHECK(schema["properties"]["rope"]["properties"]["scaling"]["anyOf"][0]["enum"][2] == "yarn");
  CHECK(schema["properties"]["rope"]["additionalProperties"] == false);
  CHECK(schema["properties"]["num_things"]["deprecated"] == true);
}

TEST_CASE("the default of every type reads back as itself") {
  Report report;
  Node values = validate(Node(), schema_of<Everything>("e", ""), report);
  CHECK(report.ok());
  Report again;
  Node second = validate(parse_yaml(write_yaml(values)), schema_of<Everything>("e", ""), again);
  CHECK(again.ok());
  CHECK(second.same_value(values));
  CHECK(values.at("eps").as_text() == "1e-05");
  CHECK(values.entries()[0].value.loc().text() == "default of e");
}

TEST_CASE("a section of twenty thousand unknown keys is reported whole") {
  std::string yaml;
  for (int i = 0; i < 20000; ++i) yaml += cat("key_", i, ": ", i, "\n");
  Node section = parse_yaml(yaml);
  Report report;
  validate(section, schema_of<Everything>("e", ""), report);
  CHECK(report.errors() == 20000);
  CHECK(report.text().find("20000 errors") != std::string::npos);
}

TEST_CASE("a report is readable by machines") {
  Report report;
  report
      .error("unknown-key", "a.b", parse_yaml("x: \"\\u202e\"", "r.yaml").at("x").loc(),
             "no such \xFF setting")
      .note("n")
      .fix("f");
  report.warning("renamed", "c", {}, "w");
  auto json = nlohmann::json::parse(report.json());
  CHECK(json["errors"] == 1);
  CHECK(json["warnings"] == 1);
  CHECK(json["diagnostics"][0]["file"] == "r.yaml");
  CHECK(json["diagnostics"][0]["line"] == 1);
  CHECK(json["diagnostics"][0]["column"] == 4);
  CHECK(json["diagnostics"][0]["help"] == "f");
  CHECK(json["diagnostics"][1]["severity"] == "warning");
}
