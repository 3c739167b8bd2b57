// Small text helpers on top of the standard library. Stateless; thread-safe.
#pragma once
#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

/// One argument of cat() as text. Keeps cat() cheap to compile: each call instantiates these
/// constructors instead of code for streams. Refers to its argument; valid only during the call.
class MT_API TextPiece {
 public:
  TextPiece(std::string_view text) : text_(text) {}
  TextPiece(const std::string& text) : text_(text) {}
  TextPiece(const char* text) : text_(text) {}
  TextPiece(char character);
  TextPiece(double value);
  TextPiece(float value) : TextPiece(static_cast<double>(value)) {}
  template <std::signed_integral T>
  TextPiece(T value) : TextPiece(static_cast<long long>(value), 0) {}
  template <std::unsigned_integral T>
  TextPiece(T value) : TextPiece(static_cast<unsigned long long>(value), 0) {}
  /// Any other type that has `operator<<`.
  template <class T>
  explicit TextPiece(const T& value) requires(!std::convertible_to<const T&, std::string_view> &&
                                              !std::is_arithmetic_v<T>) {
    if constexpr (std::convertible_to<const T&, long long>)
      print_integer(static_cast<long long>(value));  // an enumeration
    else
      print(&value,
            [](std::ostream& out, const void* from) { out << *static_cast<const T*>(from); });
  }
  TextPiece(const TextPiece&) = delete;
  TextPiece& operator=(const TextPiece&) = delete;
  std::string_view text() const { return text_; }

 private:
  TextPiece(long long value, int) { print_integer(value); }
  TextPiece(unsigned long long value, int);
  void print_integer(long long value);
  void print(const void* value, void (*printer)(std::ostream&, const void*));
  std::string_view text_;
  char digits_[24];    // text of a number
  std::string other_;  // text of a value that is printed by operator<<
};

MT_API std::string cat_pieces(const TextPiece* pieces, size_t count);

/// Concatenates the arguments as `operator<<` prints them: cat("rank ", 3) == "rank 3".
/// Floating-point numbers have at most six digits.
template <class... Args>
std::string cat(const Args&... args) {
  const TextPiece pieces[] = {TextPiece(args)...};
  return cat_pieces(pieces, sizeof...(args));
}
inline std::string cat() { return {}; }

/// 255 -> "ff".
MT_API std::string hex(uint64_t value);

/// Joins items with a separator.
MT_API std::string join(const std::vector<std::string>& items, std::string_view separator);
/// Splits at every separator; an empty text gives an empty list.
MT_API std::vector<std::string> split(std::string_view text, char separator);
/// Removes spaces, tabs and line ends at both ends.
MT_API std::string_view trim(std::string_view text);
/// `text` with `to` in place of each `from`. REQUIRES: `from` is not empty.
MT_API std::string replace_all(std::string text, std::string_view from, std::string_view to);

/// Optimal-string-alignment edit distance (insert, delete, replace, swap of neighbours).
MT_API int edit_distance(std::string_view a, std::string_view b);
/// Whether a shell's pattern such as "llama*", "?b" or "[ab]*" matches the whole name; * matches
/// dots, too. Linear in the name for each star.
MT_API bool glob_match(std::string_view pattern, std::string_view name);
/// The candidates for which `wanted` is a likely typo, nearest first, at most `limit`.
MT_API std::vector<std::string> nearest(std::string_view wanted,
                                        const std::vector<std::string>& candidates,
                                        size_t limit = 3);

/// 1536 -> "1.5 KiB".
MT_API std::string human_bytes(uint64_t bytes);
/// 1234567 -> "1.23M"; numbers beyond the largest unit: 1e63 -> "1.00e+63"; also inf and nan.
MT_API std::string human_count(double count);
/// 75 -> "1m15s".
MT_API std::string human_seconds(double seconds);
/// The shortest text that parses to the same number, always with a '.', an exponent, or nan/inf: 1
/// -> "1.0".
MT_API std::string shortest(double value);
MT_API std::string shortest(float value);

/// True when the bytes are well-formed UTF-8 (no surrogates, no overlong forms). Otherwise `bad`
/// receives the offset of the first invalid byte.
MT_API bool valid_utf8(std::string_view text, size_t* bad = nullptr);
/// True for characters that make a text look different from its content: bidirectional controls
/// (U+202E), zero-width and control characters.
MT_API bool deceptive(char32_t c);
/// The character at `offset`; advances `offset` past it. REQUIRES: valid UTF-8.
MT_API char32_t next_character(std::string_view text, size_t& offset);
/// Makes text safe to print on one terminal line: control characters and invalid UTF-8 become \xNN,
/// deceptive characters \uNNNN. Truncates at `max_bytes`.
MT_API std::string printable(std::string_view text, size_t max_bytes = 200);
/// The same for multi-line text: keeps line ends and tabs, and does not truncate.
MT_API std::string printable_lines(std::string_view text);

}  // namespace mtrain
