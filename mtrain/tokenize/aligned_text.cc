#include "mtrain/tokenize/aligned_text.h"

#include "mtrain/base/text.h"
#include "mtrain/tokenize/unicode.h"

namespace mtrain::tokenize {

void AlignedText::start(std::string_view original, size_t offset, bool with_origin, bool repair) {
  aligned = with_origin;
  origin.clear();
  text.clear();
  repair = repair && !valid_utf8(original);
  if (!with_origin && !repair) {
    text.assign(original);
    return;
  }
  text.reserve(original.size());
  if (with_origin) origin.reserve(original.size());
  for (size_t at = 0; at < original.size();) {
    const auto c = decode_char(original, at);
    const size_t before = text.size();
    if (repair && c.value == kInvalidChar)
      text.append("\xEF\xBF\xBD");
    else
      text.append(original, at, c.bytes);
    const TextSpan whole{static_cast<uint32_t>(offset + at),
                         static_cast<uint32_t>(offset + at + c.bytes)};
    if (with_origin) origin.insert(origin.end(), text.size() - before, whole);
    at += c.bytes;
  }
}

AlignedText AlignedText::slice(size_t begin, size_t end) const {
  AlignedText out;
  out.aligned = aligned;
  out.text = text.substr(begin, end - begin);
  if (aligned)
    out.origin.assign(origin.begin() + static_cast<std::ptrdiff_t>(begin),
                      origin.begin() + static_cast<std::ptrdiff_t>(end));
  return out;
}

TextSpan AlignedText::span(size_t begin, size_t end) const {
  if (begin < end) return {origin[begin].begin, origin[end - 1].end};
  const uint32_t at = begin < origin.size() ? origin[begin].begin
                      : origin.empty()      ? 0
                                            : origin.back().end;
  return {at, at};
}

void TextEditor::copy(size_t begin, size_t end) {
  out_.text.append(in_.text, begin, end - begin);
  if (out_.aligned)
    out_.origin.insert(out_.origin.end(), in_.origin.begin() + static_cast<std::ptrdiff_t>(begin),
                       in_.origin.begin() + static_cast<std::ptrdiff_t>(end));
}

void TextEditor::put(std::string_view bytes, size_t like) {
  out_.text.append(bytes);
  if (out_.aligned) out_.origin.insert(out_.origin.end(), bytes.size(), in_.origin[like]);
}

void TextEditor::put(char32_t c, size_t like) {
  const size_t before = out_.text.size();
  append_utf8(out_.text, c);
  if (out_.aligned)
    out_.origin.insert(out_.origin.end(), out_.text.size() - before, in_.origin[like]);
}

}  // namespace mtrain::tokenize
