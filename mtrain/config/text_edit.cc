#include "mtrain/config/text_edit.h"

#include <algorithm>

#include "mtrain/base/text.h"

namespace mtrain {

size_t offset_of(std::string_view text, const Location& where) {
  size_t at = 0;
  for (int line = 1; line < where.line; ++line) {
    at = text.find('\n', at);
    if (at == std::string_view::npos) return text.size();
    ++at;
  }
  for (int column = 1; column < where.column && at < text.size(); ++column)
    next_character(text, at);
  return at;
}

std::string apply_edits(std::string text, std::vector<TextEdit> edits) {
  std::sort(edits.begin(), edits.end(),
            [](const TextEdit& a, const TextEdit& b) { return a.offset > b.offset; });
  for (const auto& edit : edits) text.replace(edit.offset, edit.length, edit.text);
  return text;
}

}  // namespace mtrain
