#include "mtrain/tokenize/unicode.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>

#include <algorithm>
#include <map>

namespace mtrain::tokenize {
namespace {

uint16_t bits_of(UCharCategory category) {
  switch (category) {
    case U_UPPERCASE_LETTER:
    case U_TITLECASE_LETTER:
      return kLetter | kUpper;
    case U_LOWERCASE_LETTER:
      return kLetter | kLower;
    case U_MODIFIER_LETTER:
    case U_OTHER_LETTER:
      return kLetter;
    case U_NON_SPACING_MARK:
      return kMark | kNonspacing;
    case U_ENCLOSING_MARK:
    case U_COMBINING_SPACING_MARK:
      return kMark;
    case U_DECIMAL_DIGIT_NUMBER:
      return kNumber | kDecimal;
    case U_LETTER_NUMBER:
    case U_OTHER_NUMBER:
      return kNumber;
    case U_CONNECTOR_PUNCTUATION:
      return kPunctuation | kConnector;
    case U_DASH_PUNCTUATION:
    case U_START_PUNCTUATION:
    case U_END_PUNCTUATION:
    case U_INITIAL_PUNCTUATION:
    case U_FINAL_PUNCTUATION:
    case U_OTHER_PUNCTUATION:
      return kPunctuation;
    case U_MATH_SYMBOL:
    case U_CURRENCY_SYMBOL:
    case U_MODIFIER_SYMBOL:
    case U_OTHER_SYMBOL:
      return kSymbol;
    case U_CONTROL_CHAR:
    case U_FORMAT_CHAR:
    case U_PRIVATE_USE_CHAR:
    case U_SURROGATE:
      return kControl;
    default:
      return 0;  // separators
  }
}

UBool set_bits(const void* context, UChar32 begin, UChar32 end, UCharCategory category) {
  auto& all = *static_cast<std::vector<uint16_t>*>(const_cast<void*>(context));
  std::fill(all.begin() + begin, all.begin() + end, bits_of(category));
  return 1;
}

UGraphemeClusterBreak cluster_class(char32_t c) {
  if (c == kInvalidChar) return U_GCB_CONTROL;
  return static_cast<UGraphemeClusterBreak>(
      u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_GRAPHEME_CLUSTER_BREAK));
}

/// Whether hangul syllable parts stay together (GB6 to GB8).
bool syllable(UGraphemeClusterBreak a, UGraphemeClusterBreak b) {
  if (a == U_GCB_L) return b == U_GCB_L || b == U_GCB_V || b == U_GCB_LV || b == U_GCB_LVT;
  if (a == U_GCB_LV || a == U_GCB_V) return b == U_GCB_V || b == U_GCB_T;
  return (a == U_GCB_LVT || a == U_GCB_T) && b == U_GCB_T;
}

}  // namespace

CharTable::CharTable() {
  constexpr size_t kPages = (kInvalidChar >> 8) + 1;
  std::vector<uint16_t> all(kPages << 8, 0);
  u_enumCharTypes(set_bits, &all);
  for (char32_t c :
       {0x9, 0xA, 0xB, 0xC, 0xD, 0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000})
    all[c] |= kWhiteSpace;
  for (char32_t c = 0x2000; c <= 0x200A; ++c) all[c] |= kWhiteSpace;
  all[kInvalidChar] = 0;
  std::map<std::vector<uint16_t>, uint16_t> known;
  for (size_t page = 0; page < kPages; ++page) {
    std::vector<uint16_t> content(all.begin() + static_cast<std::ptrdiff_t>(page << 8),
                                  all.begin() + static_cast<std::ptrdiff_t>((page + 1) << 8));
    auto [at, fresh] = known.try_emplace(content, static_cast<uint16_t>(known.size()));
    if (fresh) bits_.insert(bits_.end(), content.begin(), content.end());
    pages_.push_back(at->second);
  }
}

const CharTable& CharTable::get() {
  static const CharTable kTable;
  return kTable;
}

void append_utf8(std::string& out, char32_t c) {
  auto put = [&](char32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)),
      put(0x80 | (c & 0x3F));
}

size_t count_chars(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !is_tail_byte(c); }));
}

size_t grapheme_end(std::string_view text, size_t at) {
  auto here = decode_char(text, at);
  at += here.bytes;
  UGraphemeClusterBreak before = cluster_class(here.value);
  bool pictograph =
      u_hasBinaryProperty(static_cast<UChar32>(here.value), UCHAR_EXTENDED_PICTOGRAPHIC) != 0;
  bool joined = false;  // a pictograph, extenders and a joiner were seen: GB11
  size_t flags = before == U_GCB_REGIONAL_INDICATOR ? 1 : 0;
  while (at < text.size()) {
    auto next = decode_char(text, at);
    const UGraphemeClusterBreak after = cluster_class(next.value);
    const bool next_pictograph =
        u_hasBinaryProperty(static_cast<UChar32>(next.value), UCHAR_EXTENDED_PICTOGRAPHIC) != 0;
    auto control = [](UGraphemeClusterBreak c) {
      return c == U_GCB_CONTROL || c == U_GCB_CR || c == U_GCB_LF;
    };
    bool together = false;
    if (before == U_GCB_CR || control(before) || control(after))
      together = before == U_GCB_CR && after == U_GCB_LF;
    else
      together = syllable(before, after) || after == U_GCB_EXTEND || after == U_GCB_ZWJ ||
                 after == U_GCB_SPACING_MARK || before == U_GCB_PREPEND ||
                 (joined && next_pictograph) ||
                 (before == U_GCB_REGIONAL_INDICATOR && after == U_GCB_REGIONAL_INDICATOR &&
                  flags % 2 == 1);
    if (!together) return at;
    joined = pictograph && after == U_GCB_ZWJ;
    pictograph = next_pictograph || (pictograph && after == U_GCB_EXTEND);
    flags = after == U_GCB_REGIONAL_INDICATOR ? flags + 1 : 0;
    before = after;
    at += next.bytes;
  }
  return at;
}

bool is_word_char(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
  return CharTable::get().is(c, kMark | kDecimal | kConnector) ||
         u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_ALPHABETIC) != 0 || c == 0x200C ||
         c == 0x200D;
}

bool is_cjk_ideograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void append_lower(std::u32string& out, char32_t c) {
  if (c == 0x130) {
    out += U"i\u0307";
    return;
  }
  out += c < kInvalidChar ? static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))) : c;
}

int script_group(char32_t c) {
  if (c == 0x30FC) return USCRIPT_HAN;  // the prolonged sound mark of kana
  if (c == ' ') return kAnyScript;
  UErrorCode status = U_ZERO_ERROR;
  const UScriptCode script = uscript_getScript(static_cast<UChar32>(c), &status);
  if (U_FAILURE(status) || script == USCRIPT_UNKNOWN) return kAnyScript;
  return script == USCRIPT_HIRAGANA || script == USCRIPT_KATAKANA ? USCRIPT_HAN : script;
}

}  // namespace mtrain::tokenize
