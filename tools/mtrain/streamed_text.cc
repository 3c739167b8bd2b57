#include "streamed_text.h"

#include <algorithm>

#include "mtrain/base/text.h"

namespace mtrain {
namespace {

constexpr const char* kBlanks = " \t\r\n";

/// The bytes of `text` that later tokens do not change: up to a character whose bytes are not all
/// there, which decoders show as U+FFFD.
size_t whole_characters(const std::string& text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  size_t end = text.size();
  while (end >= kReplacement.size() &&
         std::string_view(text).substr(end - kReplacement.size(), kReplacement.size()) ==
             kReplacement)
    end -= kReplacement.size();
  size_t last = end;
  while (last > 0 && (static_cast<unsigned char>(text[last - 1]) & 0xC0u) == 0x80u) --last;
  if (last == 0) return end;
  const auto lead = static_cast<unsigned char>(text[last - 1]);
  const size_t wanted = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  return end - (last - 1) < wanted ? last - 1 : end;
}

}  // namespace

std::string StreamedText::next(const std::string& text) {
  size_t begin = trimmed_ ? std::min(text.find_first_not_of(kBlanks), text.size()) : 0,
         end = whole_characters(text);
  if (!end_text_.empty()) {
    end = std::min(end, text.find(end_text_));
    for (size_t part = std::min(end_text_.size(), end); part > 0; --part)
      if (std::string_view(text).substr(end - part, part) ==
          std::string_view(end_text_).substr(0, part)) {
        end -= part;
        break;
      }
  }
  if (trimmed_)
    while (end > begin && std::string_view(kBlanks).find(text[end - 1]) != std::string_view::npos)
      --end;
  if (end <= begin + shown_) return {};
  std::string out = text.substr(begin + shown_, end - begin - shown_);
  shown_ += out.size();
  return out;
}

std::string StreamedText::rest(const std::string& text) {
  std::string out = text.size() > shown_ ? text.substr(shown_) : std::string();
  shown_ = text.size();
  return out;
}

}  // namespace mtrain
