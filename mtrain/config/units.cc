#include "mtrain/config/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "mtrain/base/text.h"
#include "mtrain/config/scalar.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

__extension__ using Wide = __int128;

struct Magnitude {
  std::string_view suffix;
  int64_t factor;
  int exponent;  // of ten; -1: a power of two
};

constexpr Magnitude kMagnitudes[] = {
    {"", 1, 0},
    {"Ki", int64_t{1} << 10, -1},
    {"Mi", int64_t{1} << 20, -1},
    {"Gi", int64_t{1} << 30, -1},
    {"Ti", int64_t{1} << 40, -1},
    {"k", 1000, 3},
    {"M", 1000000, 6},
    {"G", 1000000000, 9},
    {"B", 1000000000, 9},
    {"T", 1000000000000, 12},
};

/// A unit after a number. Units of one dimension can be converted into each other.
struct Word {
  std::string_view text, dimension;
  int64_t scale;  // in the smallest unit of the dimension
};

constexpr Word kWords[] = {
    {"ms", "time", 1},
    {"s", "time", 1000},
    {"seconds", "time", 1000},
    {"m", "time", 60000},
    {"min", "time", 60000},
    {"minutes", "time", 60000},
    {"h", "time", 3600000},
    {"hours", "time", 3600000},
    {"d", "time", 86400000},
    {"days", "time", 86400000},
    {"tokens", "tokens", 1},
    {"token", "tokens", 1},
    {"steps", "steps", 1},
    {"step", "steps", 1},
    {"samples", "samples", 1},
    {"sample", "samples", 1},
    {"parameters", "parameters", 1},
    {"bytes", "bytes", 1},
    {"B", "bytes", 1},
};

/// "B" means 10^9, or a byte for settings in bytes.
const Word* unit_of(std::string_view text, bool bytes) {
  for (const auto& word : kWords)
    if (word.text == text && (bytes || text != "B")) return &word;
  return nullptr;
}

struct Split {
  std::string_view number;
  const Magnitude* magnitude = nullptr;
  const Word* word = nullptr;  // null: no unit
};

/// The length of the exponent at the beginning of a text, "e-3"; 0 for none.
size_t exponent_size(std::string_view text) {
  if (!text.starts_with('e') && !text.starts_with('E')) return 0;
  size_t sign = text.size() > 1 && (text[1] == '-' || text[1] == '+') ? 1 : 0, i = 1 + sign;
  while (i < text.size() && std::isdigit(static_cast<unsigned char>(text[i]))) ++i;
  return i > 1 + sign ? i : 0;
}

/// Writes 1e-3 as 0.001, so its digits can be counted.
std::string without_exponent(std::string_view number) {
  if (number.find_first_of("eE") == std::string_view::npos) return std::string(number);
  std::array<char, 512> buffer{};
  auto value = parse_number(number).value_or(0);
  auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  return {buffer.data(), end.ptr};
}

/// The number at the beginning of a text with a unit.
std::optional<std::string_view> number_part(std::string_view text) {
  size_t i = text.starts_with('-') || text.starts_with('+') ? 1 : 0, digits = 0;
  for (; i < text.size() && (std::isdigit(static_cast<unsigned char>(text[i])) || text[i] == '.');
       ++i)
    digits += text[i] != '.';
  if (digits == 0 || i == text.size()) return std::nullopt;
  i += exponent_size(text.substr(i));
  if (i == text.size()) return std::nullopt;
  std::string_view number = text.substr(0, i);
  NodeKind kind = resolve_scalar(number);
  auto in_word = [](unsigned char c) { return std::isalpha(c) != 0 || c == '_' || c == ' '; };
  const bool word =
      std::all_of(text.begin() + static_cast<std::ptrdiff_t>(i), text.end(), in_word) &&
      text.back() != ' ';
  if (!word || (kind != NodeKind::integer && kind != NodeKind::number)) return std::nullopt;
  return number;
}

std::optional<Split> split_quantity(std::string_view text, std::string_view number, bool bytes) {
  std::string_view rest = text.substr(number.size());
  auto without_gap = [](std::string_view word) {
    if (word.size() > 1 && (word[0] == '_' || word[0] == ' ')) word.remove_prefix(1);
    return word;
  };
  for (const auto& magnitude : kMagnitudes) {
    if (!rest.starts_with(magnitude.suffix)) continue;
    std::string_view word = without_gap(rest.substr(magnitude.suffix.size()));
    if (bytes && word.empty() && magnitude.suffix == "B") continue;
    const bool counts_bytes =
        bytes || (word == "B" && !magnitude.suffix.empty() && magnitude.suffix != "B");  // 64MB
    const Word* known = unit_of(word, counts_bytes);
    if (word.empty() || known) return Split{number, &magnitude, known};
  }
  return std::nullopt;
}

Quantity unknown(std::string_view text, std::string_view number) {
  Quantity out;
  std::string_view rest = text.substr(number.size());
  out.fault = cat("'", visible(rest, 30), "' is neither a magnitude nor a unit");
  out.likely = rest.starts_with('K');
  out.help = out.likely ? cat("write ", number, "k for thousands or ", number, "Ki for times 1024")
                        : "magnitudes are k M G B T and Ki Mi Gi Ti, times ms s m h d";
  return out;
}

/// mantissa * factor / divisor; exact when it is a whole number.
Quantity scaled(std::string_view number, const Magnitude& magnitude, int64_t up, int64_t down) {
  Quantity out;
  std::string digits;
  Wide divisor = down;
  size_t dot = number.find('.');
  for (char c : number)
    if (c != '.' && c != '+') digits += c;
  size_t fraction = dot == std::string_view::npos ? 0 : number.size() - dot - 1;
  int64_t mantissa = 0;
  auto read = std::from_chars(digits.data(), digits.data() + digits.size(), mantissa);
  std::string exact =
      magnitude.exponent >= 0 ? cat(number, "e", magnitude.exponent) : std::string(number);
  out.value = parse_number(exact).value_or(std::numeric_limits<double>::infinity());
  if (magnitude.exponent < 0) out.value *= static_cast<double>(magnitude.factor);
  out.value = out.value * static_cast<double>(up) / static_cast<double>(down);
  if (read.ec != std::errc{} || fraction > 18) {
    out.too_large = fraction <= 18;
    return out;
  }
  for (size_t i = 0; i < fraction; ++i) divisor *= 10;
  Wide product = Wide{mantissa} *
                 magnitude.factor;  // below 2^63 * 2^40, so it fits even when multiplied by 2^27
  product *= up;
  if (product % divisor != 0) return out;
  product /= divisor;
  out.too_large = product > std::numeric_limits<int64_t>::max() ||
                  product < std::numeric_limits<int64_t>::min();
  if (!out.too_large) out.whole = static_cast<int64_t>(product);
  if (out.whole && std::abs(out.value) < 0x1p53) out.value = static_cast<double>(*out.whole);
  return out;
}

}  // namespace

std::optional<Quantity> parse_quantity(std::string_view text, std::string_view unit) {
  auto number = number_part(text);
  if (!number) return std::nullopt;
  const Word* own = unit_of(unit, true);
  bool bytes = own && own->dimension == "bytes", time = own && own->dimension == "time";
  auto split = split_quantity(text, *number, bytes);
  if (!split) return unknown(text, *number);
  Quantity wrong;
  bool magnitude = !split->magnitude->suffix.empty();
  if (split->word && (!own || own->dimension != split->word->dimension)) {
    std::string_view of = split->word->dimension;
    wrong.fault = unit.empty() ? cat("is ", of == "time" ? "a time" : cat("a number of ", of),
                                     "; this setting has no unit")
                               : cat("is ", of == "time" ? "a time" : cat("a number of ", of),
                                     "; the unit here is ", unit);
    if (split->word->text == "m") wrong.help = cat("for millions write ", *number, "M");
    return wrong;
  }
  if (magnitude && time) {
    wrong.fault = cat("'", split->magnitude->suffix, "' is not a unit of time");
    wrong.help = "times are written with ms s m h d";
    return wrong;
  }
  bool converts = split->word && time;
  return scaled(without_exponent(*number), *split->magnitude, converts ? split->word->scale : 1,
                converts ? own->scale : 1);
}

}  // namespace mtrain
