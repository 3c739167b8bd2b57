// Edits of a text at places that were noted while it was read, so that the rest stays byte for
// byte. Values; stateless functions.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/location.h"

namespace mtrain {

/// Replaces `length` bytes at `offset`.
struct TextEdit {
  size_t offset, length;
  std::string text;
};

/// The byte at a line and column; the text's size behind its end.
MT_API size_t offset_of(std::string_view text, const Location& where);
/// The text with its edits, which must not overlap.
MT_API std::string apply_edits(std::string text, std::vector<TextEdit> edits);

}  // namespace mtrain
