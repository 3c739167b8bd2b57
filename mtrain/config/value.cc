#include "mtrain/config/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mtrain/base/counted.h"
#include "mtrain/base/text.h"
#include "mtrain/config/meant_values.h"
#include "mtrain/config/schema.h"
#include "mtrain/config/share.h"
#include "mtrain/config/units.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr std::string_view kPythonNone =
    "None";  // must be quoted to be a string, since null may be meant

/// Reads the scalars of one setting; reports every fault with the scalar's location.
class ScalarReader {
 public:
  /// `helps`: whether a fault suggests a value.
  ScalarReader(const FieldSpec& spec, const std::string& path, Report& report, bool helps = true)
      : spec_(spec), path_(path), report_(report), helps_(helps) {}

  std::optional<bool> boolean(const Node& node) const {
    if (node.is(NodeKind::boolean)) return node.as_bool();
    auto& fault = wrong(node, "true or false");
    std::string trap = node.is_scalar() ? boolean_trap(node.as_text()) : "";
    if (!trap.empty())
      fault.fix(cat("write ", trap, node.quoted() ? " without quotes" : ""));
    else
      fault.fix(meant(node, [](const ScalarReader& r, const Node& n) { return r.boolean(n); }));
    return std::nullopt;
  }

  std::optional<int64_t> integer(const Node& given) const {
    if (auto quantity = quantity_of(given)) {
      if (!quantity->fault.empty()) return quantity_fault(given, *quantity), std::nullopt;
      if (quantity->too_large) return range(given, "does not fit in 64 bits"), std::nullopt;
      if (!quantity->whole) {
        wrong(given, "an integer").note(cat("it is ", shortest(quantity->value)));
        return std::nullopt;
      }
      return integer(as_number(given, std::to_string(*quantity->whole)));
    }
    const Node& node = given;
    bool numeric = node.is(NodeKind::integer) || node.is(NodeKind::number);
    auto value = numeric ? parse_exact_integer(node.as_text()) : std::nullopt;
    if (!value) return integer_fault(node), std::nullopt;
    double low = spec_.bits == 32 ? std::numeric_limits<int32_t>::min() : -HUGE_VAL;
    double high = spec_.bits == 32 ? std::numeric_limits<int32_t>::max() : HUGE_VAL;
    auto rounded = static_cast<double>(*value);
    if (rounded < low || rounded > high)
      return range(node, cat("does not fit ", spec_.bits, " bits")), std::nullopt;
    if (!in_range(node, rounded) || !chosen(node, std::to_string(*value))) return std::nullopt;
    return value;
  }

  std::optional<double> number(const Node& given) const {
    if (auto quantity = quantity_of(given)) {
      if (!quantity->fault.empty()) return quantity_fault(given, *quantity), std::nullopt;
      return number(as_number(given, shortest(quantity->value)));
    }
    const Node& node = given;
    if (!node.is(NodeKind::integer) && !node.is(NodeKind::number))
      return number_fault(node), std::nullopt;
    auto value = parse_number(node.as_text());
    if (!value && node.is(NodeKind::integer)) value = parse_number(node.as_text() + ".0");
    if (!value) return range(node, "does not fit a 64-bit number"), std::nullopt;
    if (!std::isfinite(*value)) return range(node, "is not finite"), std::nullopt;
    if (spec_.bits == 32 && !std::isfinite(static_cast<float>(*value)))
      return range(node, "does not fit a 32-bit number"), std::nullopt;
    if (*value == 0) *value = 0;  // avoids negative zero
    if (!in_range(node, *value)) return std::nullopt;
    return value;
  }

  std::optional<std::string> string(const Node& node) const {
    if (!node.is_scalar() || node.is_null()) return string_fault(node), std::nullopt;
    const bool python_none = spec_.nullable && node.is(NodeKind::string) && !node.quoted() &&
                             node.as_text() == kPythonNone;
    if (python_none) {
      wrong(node, "a string or null").fix("write null, or \"None\" in quotes for the text");
      return std::nullopt;
    }
    if (!chosen(node, node.as_text())) return std::nullopt;
    const bool own_text = node.is(NodeKind::string) && !node.quoted() && !node.is_verbatim() &&
                          node.expression().empty();
    if (own_text && spec_.choices.empty() && spec_.plugin_kind.empty() &&
        node.as_text().ends_with(','))
      return comma_fault(node), std::nullopt;
    return node.as_text();
  }

  Diagnostic& wrong(const Node& node, std::string_view wanted) const {
    std::string got =
        node.is(NodeKind::string) ? (node.quoted() ? "the quoted string " : "the text ") : "";
    if (got.empty()) got = node.is_null() ? "" : cat(describe(node.kind()), " ");
    std::string shown =
        node.quoted() ? cat('"', visible(node.as_text(), 60), '"') : visible(brief(node), 80);
    return add("wrong-type", node, cat("wanted ", wanted, ", got ", got, shown));
  }

  Diagnostic& add(const char* code, const Node& node, std::string message) const {
    if (spec_.secret || node.confidential())
      message = cat("the secret is not of type ",
                    describe(spec_));  // the message does not show the value
    auto& fault = report_.error(code, path_, node.loc(), std::move(message));
    if (!node.expression().empty()) fault.note("computed from " + node.expression());
    return fault;
  }

 private:
  /// Help that names the values that the text may stand for and that `read` accepts.
  template <class Read>
  std::string meant(const Node& node, Read read) const {
    if (!helps_ || !node.is_scalar() || spec_.secret || node.confidential()) return {};
    return meant_help(node.as_text(), [&](const std::string& text) {
      Report ignored;
      return read(ScalarReader(spec_, path_, ignored, false), Node::plain(text)).has_value();
    });
  }

  bool wants_integer() const {
    return spec_.type == FieldType::integer || spec_.type == FieldType::integer_list;
  }
  std::string meant_number(const Node& node) const {
    if (wants_integer())
      return meant(node, [](const ScalarReader& r, const Node& n) { return r.integer(n); });
    return meant(node, [](const ScalarReader& r, const Node& n) { return r.number(n); });
  }

  /// The value of a text such as 4k or 30m for this setting.
  std::optional<Quantity> quantity_of(const Node& node) const {
    if (!node.is(NodeKind::string) || (node.quoted() && !node.is_verbatim())) return std::nullopt;
    return parse_quantity(node.as_text(), spec_.unit);
  }
  static Node as_number(const Node& given, const std::string& text) {
    return Node::plain(text).set_location(given.loc()).adopt_provenance(given);
  }
  void quantity_fault(const Node& node, const Quantity& quantity) const {
    auto& fault = add("wrong-type", node,
                      cat(visible(node.as_text(), 60),
                          quantity.fault.starts_with('\'') ? ": " : " ", quantity.fault));
    std::string help = quantity.likely ? "" : meant_number(node);
    fault.fix(help.empty() ? quantity.help : std::move(help));
  }

  void string_fault(const Node& node) const {
    auto& fault = wrong(node, "a string");
    std::vector<std::string> items;
    for (const auto& item : node.items())
      if (item.is_scalar()) items.push_back(item.as_text());
    if (const std::string help = help_of_combination(path_, "list");
        node.is_list() && !help.empty())
      fault.fix(help);
    else if (node.is_list() && spec_.input_path && items.size() > 1)
      fault.fix("give one path");
    else if (node.is_list() && items.size() == node.size())
      fault.fix(cat("write \"", visible(join(items, ","), 60), "\""));
  }

  /// Reports "name: x," as in JSON, where the comma is not part of the value.
  void comma_fault(const Node& node) const {
    const std::string& text = node.as_text();
    add("wrong-type", node, cat(visible(text, 60), " ends with a ','"))
        .fix(cat("write ", visible(trim(std::string_view(text).substr(0, text.size() - 1)), 60),
                 " without it, or \"", visible(text, 60),
                 "\" in quotes if it belongs to the text"));
  }

  void integer_fault(const Node& node) const {
    if (node.is(NodeKind::integer)) return range(node, "does not fit in 64 bits");
    auto& fault = wrong(node, "an integer");
    std::string help = node.is_list() ? help_of_combination(path_, "list") : meant_number(node);
    auto value = parse_number(node.as_text());
    if (value && std::trunc(*value) == *value &&
        std::abs(*value) < 1e15) {  // 3.0 or 1.000, which may mean a thousand
      std::string whole = cat("write ", static_cast<int64_t>(*value));
      help =
          help.empty() ? whole : cat(whole, " or ", help.substr(std::string_view("write ").size()));
    }
    if (!spec_.share_of.empty() && value && *value > 0 && *value < 1) {  // 0.05 for 5%
      std::string percent = shortest(static_cast<float>(*value * 100));
      if (percent.ends_with(".0")) percent.resize(percent.size() - 2);
      help = cat("write ", percent, "% for a share of ", spec_.share_of);
    }
    number_help(fault, node, std::move(help));
  }

  void number_fault(const Node& node) const {
    auto& fault = wrong(node, "a number");
    number_help(fault, node, meant_number(node));
  }

  /// `meant`: the help for a text that is neither a quoted number nor a number for another YAML
  /// reader.
  void number_help(Diagnostic& fault, const Node& node, std::string meant) const {
    if (!node.is_scalar()) {
      if (node.is_list() && node.size() == 1 && node.items()[0].is_scalar())
        fault.fix(cat("write ", node.items()[0].as_text(), " without the brackets"));
      return;
    }
    const std::string& text = node.as_text();
    const std::string trap = number_trap(text);
    const bool number =
        wants_integer() ? parse_exact_integer(text).has_value() : parse_number(text).has_value();
    if (node.quoted() && (number || parse_quantity(text, spec_.unit)))
      fault.fix(cat("write ", text, " without quotes"));
    else if (!trap.empty())
      fault.fix("write " + trap);
    else if (!meant.empty())
      fault.fix(std::move(meant));
    else if (spec_.nullable && text == kPythonNone)
      fault.fix("write null");
    else if (text.ends_with('%') && parse_share(text))
      fault.fix("write the number itself: this setting cannot be a share of another one");
    else if (wants_integer() && is_decimal_comma(text))
      fault.fix("write an integer: a ',' is neither a decimal point nor a separator of digits");
    else if (is_product(text))
      fault.fix(cat("write \"${= ", text, "}\" to compute it"));
    else if (!text.starts_with('$') && !spec_.doc.empty())
      fault.note(spec_.doc);
    else if (is_shell_variable(text))
      fault.fix(cat("write \"${oc.env:", text.substr(1), "}\" for a variable of the environment"));
  }

  /// "0,001"
  static bool is_decimal_comma(std::string_view text) {
    const size_t comma = text.find(',');
    return comma != std::string_view::npos &&
           parse_number(cat(text.substr(0, comma), ".", text.substr(comma + 1)));
  }
  /// "2 * 8", "1/1000"
  static bool is_product(std::string_view text) {
    return text.find_first_not_of("0123456789.+-*/() eE") == std::string_view::npos &&
           text.find_first_of("*/") != std::string_view::npos &&
           std::isdigit(static_cast<unsigned char>(text.front())) &&
           std::isdigit(static_cast<unsigned char>(text.back()));
  }
  /// "$STEPS"
  static bool is_shell_variable(std::string_view text) {
    if (text.size() < 2 || text[0] != '$') return false;
    return std::all_of(text.begin() + 1, text.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    });
  }

  void range(const Node& node, const std::string& fault) const {
    add("out-of-range", node, cat(visible(node.as_text(), 60), " ", fault));
  }

  bool in_range(const Node& node, double value) const {
    bool low = spec_.min && (spec_.exclusive_min ? !(value > *spec_.min) : !(value >= *spec_.min));
    bool high = spec_.max && (spec_.exclusive_max ? !(value < *spec_.max) : !(value <= *spec_.max));
    if (!low && !high) return true;
    FieldSpec limits;
    limits.type = spec_.type;
    limits.min = spec_.min, limits.max = spec_.max;
    limits.exclusive_min = spec_.exclusive_min, limits.exclusive_max = spec_.exclusive_max;
    auto& fault = add("out-of-range", node,
                      cat("wanted ", describe(limits), ", got ", visible(node.as_text(), 60)));
    if (!spec_.unit.empty()) fault.note("the unit is " + spec_.unit);
    return false;
  }

  bool chosen(const Node& node, const std::string& text) const {
    if (spec_.choices.empty()) return true;
    for (const auto& choice : spec_.choices)
      if (choice == text) return true;
    FieldSpec built = spec_;  // without the choices that are not implemented yet
    std::erase_if(built.choices, [&](const std::string& choice) {
      return std::find(spec_.needs_values.begin(), spec_.needs_values.end(), choice) !=
             spec_.needs_values.end();
    });
    auto& fault = add("bad-choice", node,
                      cat("wanted one of ", choices_text(built), "; got ",
                          text.empty() ? "an empty text" : visible(text, 60)));
    fault.fix(meant(node, [](const ScalarReader& r, const Node& n) { return r.string(n); }));
    if (fault.help.empty()) fault.fix(help_of_combination(path_, text));
    auto near = nearest(text, built.choices, 1);
    if (fault.help.empty() && !near.empty()) fault.fix(cat("did you mean ", near[0], "?"));
    if (built.choices.size() < spec_.choices.size())
      fault.note(cat("not implemented yet: ", join(spec_.needs_values, ", ")));
    return false;
  }

  const FieldSpec& spec_;
  const std::string& path_;
  Report& report_;
  bool helps_;
};

/// "(1, 2)" of other languages as "1, 2".
std::string_view without_parentheses(std::string_view text) {
  return text.starts_with('(') && text.ends_with(')') ? text.substr(1, text.size() - 2) : text;
}

/// "1, 2" for the text "1 2" when the whole text is not a valid item but each part is; else empty.
template <class Read>
std::string parted_items(const Node& node, const FieldSpec& spec, const std::string& path,
                         Read read) {
  if (!node.is(NodeKind::string) || node.quoted() || spec.secret || node.confidential()) return {};
  auto fits = [&](const std::string& text) {
    Report ignored;
    return read(ScalarReader(spec, path, ignored, false), Node::plain(text)).has_value();
  };
  std::vector<std::string> words = split(node.as_text(), ' ');
  std::erase(words, "");
  const bool all_fit = words.size() > 1 && std::all_of(words.begin(), words.end(), fits);
  return all_fit && !fits(node.as_text()) ? join(words, ", ") : "";
}

template <class T, class Read>
std::optional<FieldValue> read_list(const Node& node, const FieldSpec& spec,
                                    const std::string& path, Report& report, Read read) {
  if (!node.is_list()) {
    auto& fault = ScalarReader(spec, path, report).wrong(node, cat("a ", name(spec.type)));
    const bool dashes =
        node.is(NodeKind::string) && !node.quoted() && node.as_text().starts_with('-');
    const bool commas = node.is(NodeKind::string) && !node.quoted() &&
                        node.as_text().find(',') != std::string::npos;
    if (dashes)
      fault.fix("start each item with '-' and a space");
    else if (commas)
      fault.fix(cat("write [", visible(without_parentheses(node.as_text()), 60), "]"));
    else if (const std::string items = parted_items(node, spec, path, read); !items.empty())
      fault.fix(cat("write [", visible(items, 60), "]"));
    else if (node.is_scalar() && !node.is_null())
      fault.fix(cat("write [", brief(node), "]"));
    return std::nullopt;
  }
  if (spec.list_size >= 0 && node.size() != static_cast<size_t>(spec.list_size)) {
    ScalarReader(spec, path, report)
        .add("list-size", node,
             cat("wanted ", counted(spec.list_size, "value"), ", got ", node.size()));
    return std::nullopt;
  }
  std::vector<T> out;
  bool good = true;
  for (size_t i = 0; i < node.size(); ++i) {
    if (node.items()[i].faulty()) {  // its fault is already in the report
      good = false;
      continue;
    }
    std::string item_path = cat(path, "[", i, "]");
    if (const std::string items = parted_items(node.items()[i], spec, item_path, read);
        !items.empty()) {
      ScalarReader(spec, item_path, report)
          .wrong(node.items()[i], "a ',' between items")
          .fix(cat("write ", visible(items, 60)));
      good = false;
      continue;
    }
    auto value = read(ScalarReader(spec, item_path, report), node.items()[i]);
    good = good && value;
    if (value) out.push_back(std::move(*value));
  }
  if (!good) return std::nullopt;
  return FieldValue(std::move(out));
}

template <class T>
std::optional<FieldValue> wrap(std::optional<T> value) {
  if (!value) return std::nullopt;
  return FieldValue(std::move(*value));
}

std::string shortest_of_width(double value, int bits) {
  return bits == 32 ? shortest(static_cast<float>(value)) : shortest(value);
}

struct ToNode {
  int bits;
  Node operator()(std::monostate) const { return Node::plain("null"); }
  Node operator()(bool v) const { return Node::boolean(v); }
  Node operator()(int64_t v) const { return Node::integer(v); }
  Node operator()(double v) const { return Node::plain(shortest_of_width(v, bits)); }
  Node operator()(const std::string& v) const {
    return v == kPythonNone || v.ends_with(',') ? Node::quoted_string(v) : Node::string(v);
  }
  Node operator()(const Node& v) const { return v; }
  template <class T>
  Node operator()(const std::vector<T>& values) const {
    Node out = Node::list();
    for (const auto& v : values) out.push((*this)(v));
    return out;
  }
};

}  // namespace

std::optional<FieldValue> read_value(const Node& node, const FieldSpec& spec,
                                     const std::string& path, Report& report) {
  if (node.faulty()) return std::nullopt;
  // A value from an environment variable, a text with interpolations or --set is read like an
  // unquoted text of the recipe.
  bool by_schema = node.is(NodeKind::string) &&
                   (node.is_verbatim() || !node.expression().empty()) &&
                   resolve_scalar(node.as_text()) != NodeKind::string;
  if (by_schema && spec.type != FieldType::tree && spec.type != FieldType::string) {
    Node plain = Node::plain(node.as_text()).set_location(node.loc()).adopt_provenance(node);
    return read_value(plain, spec, path, report);
  }
  if (node.is_missing()) {
    auto& fault =
        report.error("missing", path, node.loc(), cat("is required (", describe(spec), ")"));
    if (!spec.doc.empty()) fault.note(spec.doc);
    return std::nullopt;
  }
  if (spec.type == FieldType::tree) return FieldValue(node);
  ScalarReader reader(spec, path, report);
  if (node.is_null()) {
    if (spec.nullable) return FieldValue(std::monostate());
    auto& fault = reader.wrong(node, describe(spec));
    if (!spec.default_value.empty())
      fault.fix("remove the key to use its default, " + spec.default_value);
    return std::nullopt;
  }
  switch (spec.type) {
    case FieldType::boolean:
      return wrap(reader.boolean(node));
    case FieldType::integer:
      return wrap(reader.integer(node));
    case FieldType::number:
      return wrap(reader.number(node));
    case FieldType::string:
      return wrap(reader.string(node));
    case FieldType::integer_list:
      return read_list<int64_t>(node, spec, path, report,
                                [](const ScalarReader& r, const Node& n) { return r.integer(n); });
    case FieldType::number_list:
      return read_list<double>(node, spec, path, report,
                               [](const ScalarReader& r, const Node& n) { return r.number(n); });
    case FieldType::string_list:
      return read_list<std::string>(
          node, spec, path, report,
          [](const ScalarReader& r, const Node& n) { return r.string(n); });
    case FieldType::tree:
      break;
  }
  return std::nullopt;
}

Node write_value(const FieldValue& value, const FieldSpec& spec) {
  return std::visit(ToNode{spec.bits}, value);
}

}  // namespace mtrain
