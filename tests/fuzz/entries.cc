#include "tests/fuzz/entries.h"

#include <algorithm>
#include <string>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/defaults_list.h"
#include "mtrain/config/expression.h"
#include "mtrain/config/interpolate.h"
#include "mtrain/config/rules.h"
#include "mtrain/config/sweep.h"
#include "mtrain/config/units.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_write.h"
#include "tests/fuzz/want.h"

namespace mtrain::fuzz {
namespace {

SourcePtr source(std::string_view text) {
  return std::make_shared<Source>(SourceKind::file, "input", std::string(text));
}

/// A tree that overrides and interpolations can find something in.
Node small_tree() {
  static const Node kTree = parse_yaml(
      "{a: 1, k: {b: [1, {name: x, v: 2}], c: text, d: null}, l: [1, 2, x], r: \"${a}\"}");
  return kTree;
}

void check_messages(const Report& report) {
  want(!report.text().empty() || report.diagnostics().empty(), "a fault has words");
  report.json();
}

InterpolationScope scope() {
  InterpolationScope out;
  out.environment = [](const std::string& name) -> std::optional<std::string> {
    return name == "N" ? std::optional<std::string>("12") : std::nullopt;
  };
  out.fallback = [](const std::string& path) -> std::optional<Node> {
    if (path == "x.y") return Node::string("${= 2 * ${a}}");
    return std::nullopt;
  };
  return out;
}

void sweep(const OverrideText& text) {
  Report report;
  SweepRequest request;
  request.overrides = {text};
  request.options_of = [](const std::string&) {
    return std::vector<std::string>{"one", "two", "three"};
  };
  auto read = read_sweep(request, report);
  want(read.has_value() == report.ok(), "a sweep or a fault");
  if (!read) return check_messages(report);
  auto trials = expand(*read, report, 100);
  for (const auto& trial : trials)
    for (const auto& one : trial)
      want(parse_override(one, report).has_value(), "a trial is a plain override");
  check_messages(report);
}

void one_override(const OverrideText& text) {
  sweep(text);
  Report report;
  auto read = parse_override(text, report);
  want(read.has_value() == report.ok(), "an override or a fault");
  if (read && read->value) {
    Report again;
    auto back = parse_override({"k=" + override_value_text(*read->value), 1}, again);
    want(back && back->value && back->value->same_value(*read->value), "a value reads back");
  }
  if (read) {
    Node tree = small_tree();
    apply_override(tree, *read, report,
                   [](const std::string&) -> std::optional<Node> { return parse_yaml("[1, 2]"); });
    want(parse_yaml(write_yaml(tree)).same_value(tree), "a changed tree can be written");
  }
  check_messages(report);
}

}  // namespace

void yaml(std::string_view text) {
  Report report;
  auto root = load_yaml(source(text), report);
  want(root.has_value() == report.ok(), "a tree or a fault");
  check_messages(report);
  if (!root) return;
  std::string block = write_yaml(*root), line = write_flow(*root);
  constexpr size_t kReadable = size_t{1} << 20;  // aliases may make a short text long
  if (block.size() < kReadable)
    want(parse_yaml(block).same_value(*root), "a tree is written as itself");
  if (line.size() < kReadable) want(parse_yaml(line).same_value(*root), "and on one line");
  Report faults;
  parse_defaults(*root, faults);
  Node merged = small_tree();
  merged.merge(*root);
  interpolate(merged, scope(), faults);
  check_messages(faults);
}

void override_lines(std::string_view text) {
  Report report;
  for (const auto& line : read_override_lines(source(text), report)) one_override(line);
  check_messages(report);
  one_override({std::string(text), 1});
  OverrideText raw{"k.c", 2};
  raw.raw = std::string(text);
  Report faults;
  if (auto read = parse_override(raw, faults)) {
    Node tree = Node::map();
    apply_override(tree, *read, faults);
    interpolate(tree, scope(), faults);
    want(tree.at("k.c").as_text() == text, "a raw value stays as it is");
  }
}

void expression(std::string_view text) {
  ExpressionScope names;
  names.name = [](std::string_view name, size_t at) -> ExpressionValue {
    if (name == "a") return int64_t{3};
    if (name == "b.c") return 2.5;
    throw ExpressionError("no such name", at);
  };
  names.interpolation = [](std::string_view, size_t) -> ExpressionValue {
    return std::string("text");
  };
  try {
    to_text(evaluate_expression(text, names));
  } catch (const ExpressionError& fault) {
    want(fault.offset() <= text.size(), "a fault is inside the text");
  }
  for (const char* unit : {"", "tokens", "s", "bytes"}) parse_quantity(text, unit);
  if (!valid_utf8(text) || text.find('\0') != std::string_view::npos)
    return;  // no tree holds such texts
  Node tree = small_tree();
  tree.set("t", Node::string(std::string(text)));
  tree.set("e", Node::string("${= " + std::string(text) + "}"));
  tree.set("u", Node::string("${t}"));
  Report report;
  interpolate(tree, scope(), report);
  check_messages(report);
  if (report.ok())
    want(parse_yaml(write_yaml(tree)).same_value(tree), "a computed tree can be written");
}

void rules(std::string_view text) {
  size_t first = std::min(text.find('\n'), text.size());
  size_t second = std::min(text.find('\n', std::min(first + 1, text.size())), text.size());
  std::string condition(text.substr(0, first));
  std::string fix =
      first < second ? cat("a; b.c; s; f; a=", text.substr(first + 1, second - first - 1)) : "a";
  Report report;
  auto root = load_yaml(source(text.substr(std::min(second + 1, text.size()))), report);
  if (!root) return check_messages(report);
  FieldSpec integer{.type = FieldType::integer, .min = -5, .max = 50},
      flag{.type = FieldType::boolean};
  FieldSpec word{.choices = {"one", "two"}};
  RuleInput input{
      &*root, {{"world_size", int64_t{12}}}, [&](const std::string& path) -> const FieldSpec* {
        return path == "s" ? &word : path == "f" ? &flag : path == "q" ? nullptr : &integer;
      }};
  std::string says = cat("{", condition, "} and {a}");
  RuleBook book({{"given", "a", "", condition.c_str(), says.c_str(), "because", fix.c_str()},
                 {"nested", "b.c", condition.c_str(), "b.c > (a ?? 1)", "{b.c}", "", "b.c; a=2"},
                 {"defined", "s", "", "d != 3 or s in ['one']", "", "", "s"}},
                {{"d", "a + 1"}, {"e", condition.c_str()}});
  book.check(input, report);
  book.about("a");
  names_in(text);
  check_messages(report);
}

}  // namespace mtrain::fuzz
