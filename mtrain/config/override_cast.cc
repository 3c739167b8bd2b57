#include <array>
#include <charconv>
#include <cmath>

#include "mtrain/base/checked.h"
#include "mtrain/base/text.h"
#include "mtrain/config/override_value.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr size_t kMaxRange = 100000;  // values of one range

std::string lower(std::string_view text) {
  std::string out;
  for (char c : text) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

[[noreturn]] void cannot(std::string_view function, const Node& value) {
  throw FunctionFault{cat("cannot make ", brief(value), " ",
                          function == "int"     ? "an integer"
                          : function == "float" ? "a number"
                          : function == "str"   ? "a text"
                                                : "true or false"),
                      ""};
}

/// A text as the grammar reads an unquoted word: 1_000, INF.
Node as_unquoted_word(std::string_view text) {
  Report ignored;
  TextOrigin origin{nullptr, 0, {}, false};
  auto value = parse_value(text, origin, ValueUse::plain, ignored);
  return value ? std::get<Node>(*value) : Node::string(std::string(text));
}

/// Formats a number like Python, so str(1e3) is 1000.0 as in Hydra.
std::string python_number_text(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer{};
  auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                           std::chars_format::scientific);
  std::string scientific(buffer.data(), end.ptr);
  int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return scientific;
  end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  std::string fixed(buffer.data(), end.ptr);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

Node to_integer(const Node& value) {
  switch (value.kind()) {
    case NodeKind::boolean:
      return Node::integer(value.as_bool() ? 1 : 0);
    case NodeKind::integer:
      if (!parse_integer(value.as_text())) cannot("int", value);
      return Node::integer(value.as_int());
    case NodeKind::number: {
      double number = parse_number(value.as_text()).value_or(NAN);
      if (!(std::abs(number) < 0x1p63)) cannot("int", value);
      return Node::integer(static_cast<int64_t>(number));
    }
    default: {
      std::string text(trim(value.as_text()));
      size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
      size_t zeros = text.find_first_not_of('0', sign);  // a text may have leading zeros
      if (zeros != std::string::npos && zeros > sign) text.erase(sign, zeros - sign);
      if (zeros == std::string::npos && text.size() > sign) text = "0";
      Node word = as_unquoted_word(text);
      if (!word.is(NodeKind::integer)) cannot("int", value);
      return to_integer(word);
    }
  }
}

Node to_number(const Node& value) {
  if (value.is(NodeKind::boolean)) return Node::number(value.as_bool() ? 1 : 0);
  Node word = value.is(NodeKind::string) ? as_unquoted_word(value.as_text()) : value;
  if (!word.is(NodeKind::integer) && !word.is(NodeKind::number)) cannot("float", value);
  auto number = parse_number(word.as_text());
  if (!number) number = parse_number(word.as_text() + ".0");
  if (!number) cannot("float", value);
  if (!std::isfinite(*number)) return word;
  return Node::plain(python_number_text(*number));
}

Node text_node(const Node& value) {
  if (value.is(NodeKind::boolean)) return Node::quoted_string(value.as_bool() ? "true" : "false");
  if (value.is(NodeKind::number))
    return Node::quoted_string(python_number_text(parse_number(value.as_text()).value_or(NAN)));
  if (value.is(NodeKind::integer) && parse_integer(value.as_text()))
    return Node::quoted_string(std::to_string(value.as_int()));
  return Node::quoted_string(value.as_text());
}

Node to_boolean(const Node& value) {
  if (value.is(NodeKind::boolean)) return value;
  if (value.is(NodeKind::string)) {
    std::string text = lower(value.as_text());
    if (text != "true" && text != "false") cannot("bool", value);
    return Node::boolean(text == "true");
  }
  double number = parse_number(value.as_text()).value_or(1);
  return Node::boolean(number != 0);
}

Node cast_node(std::string_view function, const Node& value) {
  if (value.is_list()) {
    Node out = Node::list();
    for (const auto& item : value.items()) out.push(cast_node(function, item));
    return out;
  }
  if (value.is_map()) {
    Node out = Node::map();
    for (const auto& entry : value.entries())
      out.append(entry.key, entry.key_where, cast_node(function, entry.value));
    return out;
  }
  if (value.is_null()) cannot(function, value);
  if (value.is(NodeKind::string) && value.as_text().find("${") != std::string::npos &&
      function != "str")
    throw FunctionFault{cat(brief(value), " has no value yet"),
                        "it is converted to the type of its setting"};
  if (function == "int") return to_integer(value);
  if (function == "float") return to_number(value);
  return function == "str" ? text_node(value) : to_boolean(value);
}

/// mantissa * 10^-scale, exactly.
struct ExactDecimal {
  int64_t mantissa = 0;
  int scale = 0;
};

std::optional<ExactDecimal> decimal_of(const Node& node) {
  if (!node.is(NodeKind::integer) && !node.is(NodeKind::number)) return std::nullopt;
  std::string text = node.as_text(), digits;
  size_t e = text.find_first_of("eE");
  int scale = 0;
  if (e != std::string::npos) {
    std::string_view power = std::string_view(text).substr(e + 1);
    if (power.starts_with('+')) power.remove_prefix(1);
    if (std::from_chars(power.data(), power.data() + power.size(), scale).ec != std::errc{})
      return std::nullopt;
    if (std::abs(scale) > 400) return std::nullopt;
    scale = -scale;
    text.resize(e);
  }
  size_t dot = text.find('.');
  if (dot != std::string::npos) scale += static_cast<int>(text.size() - dot - 1);
  for (char c : text)
    if (c != '.' && c != '+') digits += c;
  ExactDecimal out;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out.mantissa);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  for (; out.mantissa != 0 && out.mantissa % 10 == 0 && scale > 0; --scale) out.mantissa /= 10;
  out.scale = out.mantissa == 0 ? 0 : scale;
  return out;
}

/// The mantissa of a value at a scale; absent when it does not fit in 64 bits.
std::optional<int64_t> at_scale(const ExactDecimal& value, int scale) {
  std::optional<int64_t> out = value.mantissa;
  for (int i = value.scale; i < scale && out && *out != 0; ++i)
    out = checked_mul(*out, int64_t{10});
  return out;
}

/// The notation with a decimal point, or with an exponent for very large or small values.
std::string decimal_text(int64_t mantissa, int scale) {
  if (mantissa == 0) return "0.0";
  std::string text = cat(mantissa, "e", -scale);
  return python_number_text(parse_number(text).value_or(0));
}

}  // namespace

OverrideValue cast_value(std::string_view function, OverrideValue value) {
  if (auto* plain = std::get_if<Node>(&value)) return cast_node(function, *plain);
  auto* sweep = std::get_if<SweepValue>(&value);
  if (!sweep)
    throw FunctionFault{"an edit of a list cannot be cast", cat("cast its items instead")};
  using Kind = SweepValue::Kind;
  bool numeric = function == "int" || function == "float";
  if ((sweep->kind == Kind::range || sweep->kind == Kind::interval) && !numeric)
    throw FunctionFault{"a range or interval can only be cast to int or float", ""};
  if (sweep->kind == Kind::glob || sweep->kind == Kind::zip)
    throw FunctionFault{"a glob or zip cannot be cast", "cast its items instead"};
  for (auto& limit : sweep->limits) limit = cast_node(function, limit);
  if (sweep->kind == Kind::range)
    sweep->values = range_values(sweep->limits[0], sweep->limits[1], sweep->limits[2]);
  else
    for (auto& item : sweep->values) item = cast_node(function, item);
  return value;
}

std::vector<Node> range_values(const Node& start, const Node& stop, const Node& step) {
  ExactDecimal parts[3];
  int scale = 0;
  bool whole = true;
  const Node* nodes[] = {&start, &stop, &step};
  for (int i = 0; i < 3; ++i) {
    auto part = decimal_of(*nodes[i]);
    if (!part) throw FunctionFault{cat("wanted finite numbers, got ", brief(*nodes[i])), ""};
    parts[i] = *part;
    scale = std::max(scale, part->scale);
    whole = whole && nodes[i]->is(NodeKind::integer);
  }
  auto from = at_scale(parts[0], scale), to = at_scale(parts[1], scale),
       by = at_scale(parts[2], scale);
  if (!from || !to || !by) throw FunctionFault{"the limits are too far apart", ""};
  if (*by == 0) throw FunctionFault{"the step is 0", ""};
  std::vector<Node> out;
  for (std::optional<int64_t> at = from; at && (*by > 0 ? *at < *to : *at > *to);
       at = checked_add(*at, *by)) {
    if (out.size() == kMaxRange)
      throw FunctionFault{cat("more than ", kMaxRange, " values"), "write a larger step"};
    out.push_back(whole ? Node::integer(*at) : Node::plain(decimal_text(*at, scale)));
  }
  if (out.empty()) throw FunctionFault{"the range is empty", "the stop is not included"};
  return out;
}

}  // namespace mtrain
