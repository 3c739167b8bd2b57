#include "mtrain/config/interpolate.h"

#include <doctest/doctest.h>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/resolvers.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_write.h"

using namespace mtrain;

namespace {

InterpolationScope interpolation_scope() {
  InterpolationScope out;
  out.environment = [](const std::string& name) -> std::optional<std::string> {
    if (name == "HOME") return "/home/me";
    if (name == "N") return "12";
    if (name == "HF_TOKEN") return "hush";
    return std::nullopt;
  };
  out.fallback = [](const std::string& path) -> std::optional<Node> {
    if (path == "model.layers") return Node::integer(32);
    if (path == "model.ffn") return Node::string("${= 4 * ${.layers}}");
    if (path == "model.loop") return Node::string("${model.loop}");
    return std::nullopt;
  };
  out.resolvers["double"] = [](const std::vector<Node>& arguments) {
    return Node::integer(2 * arguments.at(0).as_int());
  };
  out.now = 86400 * 365;
  return out;
}

/// The tree as one line, or the faults.
std::string computed(const std::string& yaml) {
  Node root = parse_yaml(yaml, "r.yaml");
  Report report;
  interpolate(root, interpolation_scope(), report);
  return report.ok() ? write_flow(root) : report.text();
}

}  // namespace

// https://omegaconf.readthedocs.io/en/latest/usage.html#variable-interpolation
TEST_CASE("interpolations have OmegaConf's values") {
  struct Row {
    const char* yaml;
    const char* result;
  };
  const Row rows[] = {
      {"a: 1\nb: ${a}", "{a: 1, b: 1}"},
      {"a: {b: [x, w]}\nc: ${a.b[1]}", "{a: {b: [x, w]}, c: w}"},
      {"a: {b: [x, w]}\nc: ${a.b.0}", "{a: {b: [x, w]}, c: x}"},
      {"a: {b: 1}\nc: ${[a][b]}", "{a: {b: 1}, c: 1}"},
      {"a: {b: 1}\nc: ${a[b]}", "{a: {b: 1}, c: 1}"},
      {"m: {a: 2, b: \"${.a}\"}", "{m: {a: 2, b: 2}}"},
      {"x: 7\nm: {a: {b: \"${...x}\"}}", "{x: 7, m: {a: {b: 7}}}"},
      {"m: {x: 7, a: {b: \"${..x}\"}}", "{m: {x: 7, a: {b: 7}}}"},
      {"l: [5, \"${.0}\"]", "{l: [5, 5]}"},
      {"a: 1\nb: x_${a}_y", "{a: 1, b: x_1_y}"},
      {"a: 1\nb: ${a}${a}", "{a: 1, b: \"11\"}"},
      {"a: true\nb: v=${a}", "{a: true, b: v=true}"},
      {"a: ~\nb: ${a}", "{a: null, b: null}"},
      {"a: {x: [1, {w: 2}]}\nb: ${a}", "{a: {x: [1, {w: 2}]}, b: {x: [1, {w: 2}]}}"},
      {"a: {x: 1}\nb: ${a}\nc: ${b.x}", "{a: {x: 1}, b: {x: 1}, c: 1}"},
      {"plans: {A: plan A, B: plan B}\nselected: A\nplan: ${plans[${selected}]}",
       "{plans: {A: plan A, B: plan B}, selected: A, plan: plan A}"},
      {"plans: {A: 1}\nselected: A\nplan: ${plans.${selected}}",
       "{plans: {A: 1}, selected: A, plan: 1}"},
      {"c: ${b}\nb: ${a}\na: 3", "{c: 3, b: 3, a: 3}"},
      {"a: \"3\"\nb: ${a}", "{a: \"3\", b: \"3\"}"},
      {"a: 1\nb: '\\${a}'", "{a: 1, b: \"${a}\"}"},
      {"a: 1\nb: 'x\\\\${a}'", "{a: 1, b: \"x\\\\1\"}"},
      {"a: 1\nb: 'x\\\\\\${a}'", "{a: 1, b: \"x\\\\${a}\"}"},
      {"a: 1\nb: 'dir\\${a}/${a}'", "{a: 1, b: \"dir${a}/1\"}"},
      {"a: 'C:\\dir'\nb: ${a}", "{a: \"C:\\\\dir\", b: \"C:\\\\dir\"}"},
      {"a: ${oc.env:HOME}/x", "{a: /home/me/x}"},
      {"a: ${oc.env:N}", "{a: \"12\"}"},
      {"a: ${env:NOPE,fallback}", "{a: fallback}"},
      {"a: ${oc.env:NOPE,10}", "{a: \"10\"}"},
      {"a: ${oc.env:NOPE,null}", "{a: null}"},
      {"a: ${oc.env:NOPE,'x, y'}", "{a: \"x, y\"}"},
      {"d: q\na: ${oc.env:NOPE,${d}}", "{d: q, a: q}"},
      {"a: ${oc.decode:${oc.env:N}}", "{a: 12}"},
      {"a: \"${oc.decode:'[1, {b: c}]'}\"", "{a: [1, {b: c}]}"},
      {"a: \"${oc.create:{x: [1, 2]}}\"", "{a: {x: [1, 2]}}"},
      {"a: ${oc.select:nothing,7}", "{a: 7}"},
      {"a: ${oc.select:nothing}", "{a: null}"},
      {"b: 4\na: ${oc.select:b,7}", "{b: 4, a: 4}"},
      {"b: ???\na: ${oc.select:b,7}", "{b: \"???\", a: 7}"},
      {"m: {x: 1, w: 2}\na: \"${oc.dict.keys:m}\"\nb: \"${oc.dict.values:m}\"",
       "{m: {x: 1, w: 2}, a: [x, w], b: [1, 2]}"},
      {"new: 3\nold: ${oc.deprecated:new}", "{new: 3, old: 3}"},
      {"a: ${double:21}", "{a: 42}"},
      {"k: 4\na: ${double:${k}}", "{k: 4, a: 8}"},
      {"a: ${model.layers}", "{a: 32}"},
      {"a: ${model.ffn}", "{a: 128}"},
      {"model: {layers: 2}\na: ${model.ffn}", "{model: {layers: 2}, a: 8}"},
      {"a: 3\nb: ${= 2 * ${a} + 1}", "{a: 3, b: 7}"},
      {"m: {lr: 1e-3, min: \"${= ${.lr} / 10}\"}", "{m: {lr: 1e-3, min: 1e-04}}"},
      {"a: {b: 4}\nc: ${= a.b ** 2}", "{a: {b: 4}, c: 16}"},
      {"a: \"${= 'x' + 'y'}\"", "{a: xy}"},
      {"a: \"${= 1 if 2 > 1 else 0}\"", "{a: 1}"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.yaml);
    CHECK(computed(row.yaml) == row.result);
  }
}

TEST_CASE("what cannot be computed is reported at its place, once") {
  struct Row {
    const char* yaml;
    const char* words;
  };
  const Row rows[] = {
      {"a: ${b}\nb: ${c}\nc: ${a}", "refers to itself: a → b → c → a"},
      {"a: ${a}", "refers to itself: a → a"},
      {"a: {b: \"${a}\"}", "refers to itself"},
      {"a: {b: \"${c}\"}\nc: \"${a}\"", "refers to itself"},
      {"a: ${model.loop}", "refers to itself"},
      {"layers: 1\nb: ${layer}", "did you mean ${layers}"},
      {"m: {layers: 1, b: \"${.layer}\"}", "did you mean ${m.layers}"},
      {"a: ???\nb: ${a}", "??? : it must"},
      {"a: ${.....x}", "above the root"},
      {"a: ${oc.env:NOPE}", "environment variable NOPE is not set"},
      {"a: ${oc.envv:X}", "did you mean oc.env"},
      {"a: ${nothing_of_the_kind:X}", "there are: oc.env"},
      {"a: ${b", "'${' without a '}'"},
      {"a: ${}", "is empty"},
      {"a: ${b..c}", "is not a path"},
      {"a: [1]\nb: x${a}", "a list cannot be used inside a text"},
      {"a: ${oc.env}", "there is no oc.env"},
      {"a: ${STEPS}", "write ${oc.env:STEPS} for an environment variable"},
      {"a: ${oc.env:A,B,C}", "takes 1 to 2 arguments"},
      {"a: ${double:x}", "wanted a 64-bit integer"},
      {"a: ${= 1 / 0}", "division by zero"},
      {"a: ${= b}", "there is no b"},
      {"a: ${= 9223372036854775807 + 1}", "64 bits"},
      {"a: ${oc.decode:'[1'}", "without a ']'"},
      {"a: ${now:}", ""},
  };
  for (const auto& row : rows) {
    CAPTURE(row.yaml);
    std::string text = computed(row.yaml);
    CAPTURE(text);
    std::string words = row.words;
    if (words.empty()) continue;
    if (words.starts_with("??? :")) words = "set it first";
    CHECK(text.find(words) != std::string::npos);
    CHECK(text.find("--> r.yaml:") != std::string::npos);
    CHECK(text.ends_with("1 error"));
  }
}

TEST_CASE("a computed value remembers its expression and place") {
  Node root = parse_yaml("a: 1\nb: ${a}\n", "r.yaml");
  Report report;
  interpolate(root, interpolation_scope(), report);
  CHECK(root.at("b").expression() == "${a}");
  CHECK(root.at("b").loc().text() == "r.yaml:2:4");
  CHECK(root.at("a").expression().empty());
}

TEST_CASE("bombs of interpolation are refused") {
  std::string lists = "a0: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n", texts = "a0: xxxxxxxxxx\n", chain;
  for (int i = 1; i < 12; ++i) {
    lists += cat("a", i, ": [");
    texts += cat("a", i, ": \"");
    for (int k = 0; k < 10; ++k) {
      lists += cat(k ? ", " : "", "\"${a", i - 1, "}\"");
      texts += cat("${a", i - 1, "}");
    }
    lists += "]\n";
    texts += "\"\n";
  }
  for (int i = 0; i < 300; ++i) chain += cat("a", i, ": ${a", i + 1, "}\n");
  chain += "a300: 1\n";
  CHECK(computed(lists).find("too many values") != std::string::npos);
  CHECK(computed(texts).find("text is too long") != std::string::npos);
  CHECK(computed(chain).find("chain of more than") != std::string::npos);
  std::string nested = "a: \"";
  for (int i = 0; i < 1000; ++i) nested += "${";
  for (int i = 0; i < 1000; ++i) nested += "}";
  CHECK(computed(nested + "\"\n").find("error[interpolation]") != std::string::npos);
}

TEST_CASE("settings that refer to one another share one bound on nested expressions") {
  auto chain = [](int settings, int brackets) {
    std::string yaml = "k0: 1\n";
    for (int i = 1; i < settings; ++i)
      yaml += cat("k", i, ": ${= ", std::string(brackets, '('), "${k", i - 1, "}",
                  std::string(brackets, ')'), "}\n");
    return computed(yaml);
  };
  CHECK(chain(60, 3).find("k59: 1") != std::string::npos);
  CHECK(chain(2, 60).find("k1: 1") != std::string::npos);
  // Resolved from the last one down, 60 x 61 levels are open at once.
  std::string last_first =
      cat("k99: ${= ", std::string(60, '('), "${k58}", std::string(60, ')'), "}\n", "k0: 1\n");
  for (int i = 58; i > 0; --i)
    last_first +=
        cat("k", i, ": ${= ", std::string(60, '('), "${k", i - 1, "}", std::string(60, ')'), "}\n");
  CHECK(computed(last_first).find("nested too deeply") != std::string::npos);
}

TEST_CASE("a literal text can be written so that it stays literal") {
  for (const char* text : {"${a}", "\\${a}", "\\\\${a}", "x ${", "$", "a\\b", "${${a}}", "\\"}) {
    CAPTURE(text);
    Node root = Node::map();
    root.append("k", {}, Node::string(escape_interpolation(text)));
    Report report;
    interpolate(root, interpolation_scope(), report);
    CHECK(report.ok());
    CHECK(root.at("k").as_text() == text);
  }
}

TEST_CASE("no text crashes the interpolation") {
  const char* words[] = {"${",      "}",          "a",    ".",          "b",  "[",  "]",
                         "oc.env:", "oc.select:", "=",    "'",          "\"", "\\", ",",
                         "1",       " ",          "${a}", "oc.decode:", ":",  "{",  "+"};
  uint32_t state = 99;
  auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
  for (int round = 0; round < 50000; ++round) {
    std::string text = "${";
    for (uint32_t n = next() % 10; n > 0; --n) text += words[next() % std::size(words)];
    Node root = Node::map();
    root.append("a", {}, Node::integer(1));
    root.append("b", {}, Node::string(text));
    root.append("c", {}, Node::string("${b}" + text));
    Report report;
    interpolate(root, interpolation_scope(), report);
    (void)write_yaml(root);
  }
}

TEST_CASE(
    "a value of a variable that is named like a secret is confidential, and so is all that is "
    "computed from it") {
  Node root = parse_yaml(
      "token: ${oc.env:HF_TOKEN}\nhome: ${oc.env:HOME}\nurl: https://${token}@host\nlist: [a, "
      "\"${url}\"]\nselected: ${oc.select:token}\n"
      "length: \"${= 'x' if ${token} == 'hush' else 'y'}\"\nnamed: \"${= token}\"\ncopy: "
      "${list}\ndecoded: ${oc.decode:\"'${token}'\"}\n"
      "away: ${oc.env:SOME_KEY,none}\nplain: [1, \"${home}\"]\nbefore: ${after}\nafter: "
      "${token}\n");
  Report report;
  interpolate(root, interpolation_scope(), report);
  REQUIRE_MESSAGE(report.ok(), report.text());
  for (const char* path : {"token", "url", "list.1", "selected", "length", "copy", "decoded",
                           "before", "after", "named"}) {
    CAPTURE(path);
    CHECK(root.at(path).confidential());
  }
  for (const char* path : {"home", "list", "list.0", "away", "plain", "plain.1"}) {
    CAPTURE(path);
    CHECK_FALSE(root.at(path).confidential());
  }
  CHECK(any_confidential(root.at("list")));
  CHECK_FALSE(any_confidential(root.at("plain")));
}

TEST_CASE("which names suggest a secret") {
  for (const char* name :
       {"HF_TOKEN", "WANDB_API_KEY", "token.txt", "aws_secret_access_key", "PASSWORD", "DB_PASS",
        "MYTOKEN", "api-key", "GH_PAT", "Authorization_BEARER"})
    CHECK_MESSAGE(suggests_secret(name), name);
  for (const char* name : {"HOME", "TOKENIZER_DIR", "PWD", "SEED", "KEYBOARD", "PATH", "AUTHOR",
                           "PASSES", "MAX_TOKENS", "SORT_KEYS", "tokenizer.json", "corpus.txt", ""})
    CHECK_MESSAGE(!suggests_secret(name), name);
}
