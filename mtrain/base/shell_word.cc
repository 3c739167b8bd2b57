#include "mtrain/base/shell_word.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>

#include "mtrain/base/text.h"

namespace mtrain {
namespace {

/// No shell gives it a meaning within a word. Letters of other scripts have more than one byte.
bool is_plain(unsigned char c) {
  return c >= 0x80 || std::isalnum(c) != 0 || (c != 0 && std::strchr("_-./=:,+@%", c) != nullptr);
}

/// "$'a\nb'": all bytes that a terminal would not show as they are.
std::string ansi_quoted(std::string_view word) {
  std::string out = "$'";
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    char code[8];
    std::snprintf(code, sizeof(code), "\\%03o", byte);
    const bool quoted = c == '\'' || c == '\\';
    out += byte < 0x20 || byte >= 0x7f ? std::string(code) : quoted ? cat("\\", c) : cat(c);
  }
  return out + "'";
}

}  // namespace

std::string shell_word(std::string_view word) {
  if (printable(word, word.size()) != word) return ansi_quoted(word);
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return std::string(word);
  return cat("'", replace_all(std::string(word), "'", "'\\''"), "'");
}

}  // namespace mtrain
