// Unicode functions for tokenizers: properties of characters, UTF-8 encoding and decoding, grapheme
// clusters. The tables are built from ICU once per process and then constant. Safe from any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain::tokenize {

/// Bits of a character. The names in brackets are Unicode's general categories.
enum CharBit : uint16_t {
  kLetter = 1,        // [L]
  kNumber = 2,        // [N]
  kWhiteSpace = 4,    // the property White_Space
  kMark = 8,          // [M]
  kPunctuation = 16,  // [P]
  kSymbol = 32,       // [S]
  kUpper = 64,        // [Lu Lt]
  kLower = 128,       // [Ll]
  kNonspacing = 256,  // [Mn]
  kControl = 512,     // [Cc Cf Co Cs]
  kDecimal = 1024,    // [Nd]
  kConnector = 2048,  // [Pc]
};

constexpr char32_t kInvalidChar =
    0x110000;  // the value of a byte that is not UTF-8; it has no bits

/// The bits of every character, in two stages.
class MT_API CharTable {
 public:
  static const CharTable& get();
  uint16_t operator[](char32_t c) const {
    return bits_[(static_cast<size_t>(pages_[c >> 8]) << 8) | (c & 0xFF)];
  }
  bool is(char32_t c, uint16_t mask) const { return ((*this)[c] & mask) != 0; }

 private:
  CharTable();
  std::vector<uint16_t> pages_, bits_;
};

struct DecodedChar {
  char32_t value = 0;
  uint32_t bytes = 1;
};

/// The character at `at`; kInvalidChar for a byte that does not begin a well-formed character.
/// REQUIRES: at < text.size().
inline DecodedChar decode_char(std::string_view text, size_t at) {
  auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  auto tail = [&](size_t i) { return at + i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead >= 0xC2 && lead < 0xE0 && tail(1)) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead >= 0xE0 && lead < 0xF0 && tail(1) && tail(2)) {
    const char32_t c = (lead & 0xF) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    if (c >= 0x800 && (c < 0xD800 || c > 0xDFFF)) return {c, 3};
  }
  if (lead >= 0xF0 && lead < 0xF5 && tail(1) && tail(2) && tail(3)) {
    const char32_t c =
        (lead & 7) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    if (c >= 0x10000 && c <= 0x10FFFF) return {c, 4};
  }
  return {kInvalidChar, 1};
}

MT_API void append_utf8(std::string& out, char32_t c);
/// The size of the character that starts with this byte of well-formed UTF-8.
inline size_t char_bytes(char lead) {
  const auto c = static_cast<unsigned char>(lead);
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}
inline bool is_tail_byte(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }
MT_API size_t count_chars(std::string_view text);

/// The end of the extended grapheme cluster that starts at `at` (UAX #29).
MT_API size_t grapheme_end(std::string_view text, size_t at);
/// Alphabetic, a mark, a decimal digit, a connector or a joiner: `\w` of regular expressions (UTS
/// #18).
MT_API bool is_word_char(char32_t c);
/// Ideographs as BERT defines them: the CJK Unified blocks, without kana and hangul.
MT_API bool is_cjk_ideograph(char32_t c);
/// A number for the character's script, grouped like the pre-tokenizer UnicodeScripts: kana with
/// Han; spaces and unassigned characters match any script (kAnyScript).
constexpr int kAnyScript = -1;
MT_API int script_group(char32_t c);
/// The character's lower case; two characters for U+0130.
MT_API void append_lower(std::u32string& out, char32_t c);

}  // namespace mtrain::tokenize
