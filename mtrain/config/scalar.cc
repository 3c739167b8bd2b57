#include "mtrain/config/scalar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "mtrain/base/checked.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

template <size_t N>
bool any_of(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

constexpr std::array<std::string_view, 5> kNullWords = {"", "~", "null", "Null", "NULL"};
constexpr std::array<std::string_view, 6> kBoolean = {"true",  "True",  "TRUE",
                                                      "false", "False", "FALSE"};
constexpr std::array<std::string_view, 3> kInf = {".inf", ".Inf", ".INF"};
constexpr std::array<std::string_view, 3> kNan = {".nan", ".NaN", ".NAN"};

std::string_view without_sign(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return text;
}

bool all(std::string_view text, bool (*test)(char)) {
  return !text.empty() && std::all_of(text.begin(), text.end(), test);
}

bool is_integer(std::string_view text) {
  if (text.starts_with("0x")) return all(text.substr(2), is_hex);
  text = without_sign(text);
  return all(text, is_digit) && (text.size() == 1 || text[0] != '0');
}

/// The parts of digits[.digits][e[sign]digits]; nothing for any other text.
struct DecimalParts {
  std::string_view whole, fraction, exponent;
  bool has_exponent = false;
};

std::optional<DecimalParts> split_decimal(std::string_view text) {
  text = without_sign(text);
  DecimalParts out;
  auto digits = [&] {
    size_t n = 0;
    while (n < text.size() && is_digit(text[n])) ++n;
    std::string_view run = text.substr(0, n);
    text.remove_prefix(n);
    return run;
  };
  out.whole = digits();
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    out.fraction = digits();
  }
  if (out.whole.empty() && out.fraction.empty()) return std::nullopt;
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    out.has_exponent = true;
    std::string_view before = text;
    text = without_sign(text);
    size_t sign = before.size() - text.size();
    size_t n = digits().size();
    if (n == 0) return std::nullopt;
    out.exponent = before.substr(0, sign + n);
  }
  if (!text.empty()) return std::nullopt;
  return out;
}

std::string based(std::string_view digits, int base) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc{} || end != digits.data() + digits.size()) return {};
  return std::to_string(value);
}

/// "1:30" as YAML 1.1 reads it, in base 60.
std::string sexagesimal(std::string_view text) {
  uint64_t value = 0;
  for (const auto& part : split(text, ':')) {
    if (!all(part, is_digit) || part.size() > 4) return {};
    value = value * 60 + static_cast<uint64_t>(std::stoul(part));
    if (value > (uint64_t{1} << 40)) return {};
  }
  return std::to_string(value);
}

}  // namespace

const char* describe(NodeKind kind) {
  switch (kind) {
    case NodeKind::null:
      return "null";
    case NodeKind::boolean:
      return "a boolean";
    case NodeKind::integer:
      return "an integer";
    case NodeKind::number:
      return "a number";
    case NodeKind::string:
      return "a string";
    case NodeKind::list:
      return "a list";
    case NodeKind::map:
      return "a map";
  }
  return "?";
}

NodeKind resolve_scalar(std::string_view plain) {
  if (any_of(plain, kNullWords)) return NodeKind::null;
  if (any_of(plain, kBoolean)) return NodeKind::boolean;
  if (is_integer(plain)) return NodeKind::integer;
  if (any_of(without_sign(plain), kInf) || any_of(plain, kNan)) return NodeKind::number;
  auto decimal = split_decimal(plain);
  if (!decimal) return NodeKind::string;
  // Only digits, but not an integer: a number with a leading zero, 017.
  bool only_digits = all(without_sign(plain), is_digit);
  return only_digits ? NodeKind::string : NodeKind::number;
}

std::optional<int64_t> parse_integer(std::string_view text) {
  if (!is_integer(text)) return std::nullopt;
  int base = 10;
  if (text.starts_with("0x")) {
    text.remove_prefix(2);
    base = 16;
  } else if (text[0] == '+') {
    text.remove_prefix(1);
  }
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_exact_integer(std::string_view text) {
  if (is_integer(text)) return parse_integer(text);
  auto decimal = split_decimal(text);
  if (!decimal || !decimal->has_exponent) return std::nullopt;
  std::string digits = std::string(decimal->whole) + std::string(decimal->fraction);
  int exponent = 0;
  std::string_view power = decimal->exponent;
  if (power.starts_with('+')) power.remove_prefix(1);
  if (std::from_chars(power.data(), power.data() + power.size(), exponent).ec != std::errc{})
    return std::nullopt;
  int64_t shift = int64_t{exponent} - static_cast<int64_t>(decimal->fraction.size());
  while (digits.size() > 1 && digits.back() == '0') {
    digits.pop_back();
    ++shift;
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  if (digits == "0") return 0;
  if (shift < 0 || shift > 18) return std::nullopt;
  if (text[0] == '-') digits.insert(0, "-");
  int64_t value = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc{})
    return std::nullopt;
  for (int64_t i = 0; i < shift; ++i) {
    auto next = checked_mul(value, int64_t{10});
    if (!next) return std::nullopt;
    value = *next;
  }
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  if (any_of(text, kNan)) return std::nan("");
  std::string_view body = without_sign(text);
  bool negative = text.starts_with('-');
  if (any_of(body, kInf)) return negative ? -HUGE_VAL : HUGE_VAL;
  if (text.starts_with("0x")) {
    auto whole = parse_integer(text);
    return whole ? std::optional<double>(static_cast<double>(*whole)) : std::nullopt;
  }
  if (!split_decimal(text)) return std::nullopt;
  double value = 0;
  auto [end, error] = std::from_chars(body.data(), body.data() + body.size(), value);
  if (error != std::errc{} || end != body.data() + body.size()) return std::nullopt;
  return negative ? -value : value;
}

std::string number_trap(std::string_view text) {
  bool negative = text.starts_with('-');
  std::string_view body = without_sign(text);
  std::string sign = negative ? "-" : "";
  if (body.empty()) return {};
  if (body.find('_') != std::string_view::npos && is_digit(body[0])) {
    std::string plain(body);
    std::erase(plain, '_');
    NodeKind kind = resolve_scalar(plain);
    if (kind == NodeKind::integer || kind == NodeKind::number) return sign + plain;
  }
  std::string out;
  if (body.starts_with("0o") || body.starts_with("0O"))
    out = based(body.substr(2), 8);
  else if (body.starts_with("0b") || body.starts_with("0B"))
    out = based(body.substr(2), 2);
  else if (body.starts_with("0X"))
    out = based(body.substr(2), 16);
  else if (body.find(':') != std::string_view::npos)
    out = sexagesimal(body);
  if (!out.empty()) return sign + out;
  if (body.size() > 1 && body[0] == '0' && all(body, is_digit)) {
    size_t first = std::min(body.find_first_not_of('0'), body.size() - 1);
    std::string decimal = sign + std::string(body.substr(first)), octal = based(body, 8);
    return octal.empty() || sign + octal == decimal
               ? decimal
               : cat(decimal, " (or ", sign, octal, " if octal was meant)");
  }
  return {};
}

std::string boolean_trap(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array<std::string_view, 5> kYes = {"yes", "y", "on", "1", "true"};
  constexpr std::array<std::string_view, 5> kNo = {"no", "n", "off", "0", "false"};
  return any_of(lower, kYes) ? "true" : any_of(lower, kNo) ? "false" : "";
}

}  // namespace mtrain
