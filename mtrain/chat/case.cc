// Upper, lower and title case of texts that record the origin of each byte.
#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/edits.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include "interpreter.h"
#include "mtrain/base/error.h"

namespace mtrain::chat {
namespace {

enum class Case : uint8_t { upper, lower, title };

bool plain(std::string_view text) {
  for (char c : text)
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  return true;
}

/// Maps only ASCII letters: for ASCII texts, and for bytes that are not UTF-8.
Text ascii_case(const Text& text, bool upper) {
  Text out = text;
  for (char& c : out.bytes)
    if (upper ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z') c = static_cast<char>(c ^ 0x20);
  return out;
}

/// The result of a case mapping; each new byte has the origin of the character that it replaces.
Text with_origins(const Text& text, std::string mapped, const icu::Edits& edits) {
  Text out;
  out.bytes = std::move(mapped);
  UErrorCode status = U_ZERO_ERROR;
  for (auto at = edits.getFineIterator(); at.next(status);) {
    const auto from = static_cast<size_t>(at.sourceIndex());
    for (int32_t i = 0; i < at.newLength(); ++i)
      out.origins.push_back(text.origins[at.hasChange() ? from : from + static_cast<size_t>(i)]);
  }
  MT_CHECK_EQ(out.origins.size(), out.bytes.size());
  return out;
}

Text in_case(const Text& text, Case wanted) {
  Meter::read(text.bytes.size());
  if (plain(text.bytes) || !valid_utf8(text.bytes)) return ascii_case(text, wanted != Case::lower);
  Meter::made(3 * text.bytes.size());  // Unicode's longest mappings
  std::string mapped;
  icu::StringByteSink<std::string> sink(&mapped);
  icu::Edits edits;
  UErrorCode status = U_ZERO_ERROR;
  const icu::StringPiece from(text.bytes.data(), static_cast<int32_t>(text.bytes.size()));
  if (wanted == Case::upper)
    icu::CaseMap::utf8ToUpper("", 0, from, sink, &edits, status);
  else if (wanted == Case::lower)
    icu::CaseMap::utf8ToLower("", 0, from, sink, &edits, status);
  else
    icu::CaseMap::utf8ToTitle("", U_TITLECASE_WHOLE_STRING | U_TITLECASE_NO_BREAK_ADJUSTMENT,
                              nullptr, from, sink, &edits, status);
  MT_CHECK(U_SUCCESS(status), u_errorName(status));
  return with_origins(text, std::move(mapped), edits);
}

bool begins_word_after(UChar32 c, WordStart where) {
  if (where == WordStart::uncased) return !u_hasBinaryProperty(c, UCHAR_CASED);
  return where == WordStart::marks &&
         (c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || u_isUWhiteSpace(c));
}

}  // namespace

Text upper_case(const Text& text) { return in_case(text, Case::upper); }

Text lower_case(const Text& text) { return in_case(text, Case::lower); }

Text title_case(const Text& text, WordStart where) {
  const bool valid = valid_utf8(text.bytes);
  const Text small = lower_case(text);
  Text out;
  bool begins = true;
  size_t kept = 0;  // the bytes before this are already in `out`
  for (size_t at = 0; at < small.bytes.size();) {
    int32_t size = 1;
    UChar32 c = static_cast<unsigned char>(small.bytes[at]);
    if (valid) {
      size = 0;
      U8_NEXT(small.bytes.data() + at, size, static_cast<int32_t>(small.bytes.size() - at), c);
    }
    const auto next = at + static_cast<size_t>(size);
    if (begins) {
      out.append(small.sub(kept, at - kept));
      out.append(in_case(small.sub(at, next - at), Case::title));
      kept = next;
    }
    begins = begins_word_after(c, where);
    at = next;
  }
  out.append(small.sub(kept));
  return out;
}

}  // namespace mtrain::chat
