#include "mtrain/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <sstream>

namespace mtrain {

TextPiece::TextPiece(char character) : text_(digits_, 1) { digits_[0] = character; }

TextPiece::TextPiece(double value) {
  // As a stream prints it: %g, with six digits.
  const int length = std::snprintf(digits_, sizeof digits_, "%g", value);
  text_ = {digits_, static_cast<size_t>(length)};
}

TextPiece::TextPiece(unsigned long long value, int) {
  const char* end = std::to_chars(digits_, digits_ + sizeof digits_, value).ptr;
  text_ = {digits_, static_cast<size_t>(end - digits_)};
}

void TextPiece::print_integer(long long value) {
  const char* end = std::to_chars(digits_, digits_ + sizeof digits_, value).ptr;
  text_ = {digits_, static_cast<size_t>(end - digits_)};
}

void TextPiece::print(const void* value, void (*printer)(std::ostream&, const void*)) {
  std::ostringstream out;
  printer(out, value);
  other_ = std::move(out).str();
  text_ = other_;
}

std::string cat_pieces(const TextPiece* pieces, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += pieces[i].text().size();
  std::string out;
  out.reserve(bytes);
  for (size_t i = 0; i < count; ++i) out += pieces[i].text();
  return out;
}

std::string hex(uint64_t value) {
  char digits[16];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value, 16);
  return std::string(digits, end);
}

std::string join(const std::vector<std::string>& items, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i) out += separator;
    out += items[i];
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  if (text.empty()) return out;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != std::string_view::npos; begin = end + 1)
    out.emplace_back(text.substr(begin, end - begin));
  out.emplace_back(text.substr(begin));
  return out;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

namespace {
/// Whether a typo explains the distance. In a short word, most letters must match, or all letters
/// must be present in another order.
bool is_typo(std::string_view wanted, std::string_view candidate, int distance) {
  if (distance <= 1 || 2 * distance < static_cast<int>(std::max(wanted.size(), candidate.size())))
    return true;
  return std::is_permutation(wanted.begin(), wanted.end(), candidate.begin(), candidate.end());
}
}  // namespace

std::vector<std::string> nearest(std::string_view wanted,
                                 const std::vector<std::string>& candidates, size_t limit) {
  std::vector<std::pair<int, std::string>> scored;
  for (const auto& candidate : candidates) {
    int allowed = std::max<int>(2, static_cast<int>(std::max(wanted.size(), candidate.size())) / 3);
    // The distance is at least the difference of the lengths.
    int apart = std::abs(static_cast<int>(wanted.size()) - static_cast<int>(candidate.size()));
    int distance = apart > allowed ? apart : edit_distance(wanted, candidate);
    bool contains = wanted.size() >= 3 && candidate.find(wanted) != std::string::npos;
    if ((distance <= allowed && is_typo(wanted, candidate, distance)) || contains)
      scored.emplace_back(distance, candidate);
  }
  std::stable_sort(scored.begin(), scored.end(),
                   [](auto& x, auto& y) { return x.first < y.first; });
  std::vector<std::string> out;
  for (auto& [distance, candidate] : scored) {
    if (out.size() == limit) break;
    out.push_back(candidate);
  }
  return out;
}

namespace {
std::string format(const char* pattern, double value, const char* suffix) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f%s", pattern[0] - '0', value, suffix);
  return buffer.data();
}

template <class Float>
std::string shortest_of(Float value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value < 0 ? "-.inf" : ".inf";
  std::array<char, 64> buffer{};
  auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string out(buffer.data(), end);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}
}  // namespace

std::string human_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return format(unit == 0 ? "0" : "1", value, kUnits[unit]);
}

std::string human_count(double count) {
  constexpr std::array<const char*, 5> kUnits = {"", "k", "M", "B", "T"};
  constexpr double kBeyondUnits = 999.5e12;
  if (!(std::abs(count) < kBeyondUnits)) return fmt::format("{:.2e}", count);
  size_t unit = 0;
  for (; std::abs(count) >= 999.5 && unit + 1 < kUnits.size(); ++unit) count /= 1000;
  return format(unit == 0                 ? "0"
                : std::abs(count) < 9.995 ? "2"
                : std::abs(count) < 99.95 ? "1"
                                          : "0",
                count, kUnits[unit]);
}

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return cat(whole, "s");
  auto two = [](int64_t n) { return (n < 10 ? "0" : "") + std::to_string(n); };
  if (whole < 3600) return cat(whole / 60, "m", two(whole % 60), "s");
  if (whole < 86400) return cat(whole / 3600, "h", two(whole / 60 % 60), "m");
  return cat(whole / 86400, "d", two(whole / 3600 % 24), "h");
}

std::string shortest(double value) { return shortest_of(value); }
std::string shortest(float value) { return shortest_of(value); }

bool valid_utf8(std::string_view text, size_t* bad) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    unsigned char c = byte(i);
    size_t length = c < 0x80                ? 1
                    : c >= 0xC2 && c < 0xE0 ? 2
                    : c >= 0xE0 && c < 0xF0 ? 3
                    : c >= 0xF0 && c < 0xF5 ? 4
                                            : 0;
    bool ok = length != 0 && i + length <= text.size();
    for (size_t k = 1; ok && k < length; ++k) ok = (byte(i + k) & 0xC0) == 0x80;
    if (ok && length == 3)
      ok = !(c == 0xE0 && byte(i + 1) < 0xA0) && !(c == 0xED && byte(i + 1) >= 0xA0);
    if (ok && length == 4)
      ok = !(c == 0xF0 && byte(i + 1) < 0x90) && !(c == 0xF4 && byte(i + 1) >= 0x90);
    if (!ok) {
      if (bad) *bad = i;
      return false;
    }
    i += length;
  }
  return true;
}

bool deceptive(char32_t c) {
  return (c >= 0x80 && c < 0xA0 && c != 0x85) || c == 0x061C || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x202A && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF ||
         (c >= 0xFFF9 && c <= 0xFFFB) || (c >= 0xE0000 && c <= 0xE007F);
}

char32_t next_character(std::string_view text, size_t& offset) {
  auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  char32_t c = byte(offset++);
  if (c < 0x80) return c;
  int more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
  c &= more == 3 ? 0x07 : more == 2 ? 0x0F : 0x1F;
  for (; more > 0 && offset < text.size(); --more) c = (c << 6) | (byte(offset++) & 0x3F);
  return c;
}

namespace {
std::string escaped(bool wide, unsigned value) {
  std::array<char, 16> buffer{};
  std::snprintf(buffer.data(), buffer.size(), wide ? "\\u%04x" : "\\x%02x", value);
  return buffer.data();
}

/// Whole characters up to `max_bytes`. Characters that a terminal would interpret or hide become
/// escapes; `keep`: control characters that stay.
std::string harmless(std::string_view text, size_t max_bytes, std::string_view keep) {
  bool utf8 = valid_utf8(text);
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const auto byte = static_cast<unsigned char>(text[i]);
    const char32_t c = utf8 ? next_character(text, i) : (++i, byte);
    if (i > max_bytes) return out + "...";
    if (c < 0x80 && keep.find(static_cast<char>(c)) != std::string_view::npos)
      out += static_cast<char>(c);
    else if (c < 0x20 || c == 0x7F || (!utf8 && c >= 0x80))
      out += escaped(false, static_cast<unsigned>(c));
    else if (c == 0x85 || c == 0x2028 || c == 0x2029 || deceptive(c))
      out += escaped(true, static_cast<unsigned>(c));
    else
      out.append(text.substr(begin, i - begin));
  }
  return out;
}
}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  return harmless(text, max_bytes, "");
}

std::string printable_lines(std::string_view text) {
  return harmless(text, std::string_view::npos, "\n\t");
}

bool glob_match(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  auto one = [&](size_t& at, char c) {
    if (pattern[at] == '?') return ++at, true;
    size_t close = pattern[at] == '[' ? pattern.find(']', at + 2) : std::string_view::npos;
    if (close == std::string_view::npos) return pattern[at] == c ? (++at, true) : false;
    bool negate = pattern[at + 1] == '!', in = false;
    for (size_t i = at + 1 + (negate ? 1 : 0); i < close; ++i) {
      bool range = i + 2 < close && pattern[i + 1] == '-';
      in = in || (range ? pattern[i] <= c && c <= pattern[i + 2] : pattern[i] == c);
      if (range) i += 2;
    }
    if (in == negate) return false;
    return at = close + 1, true;
  };
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && one(p, name[n])) {
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace mtrain
