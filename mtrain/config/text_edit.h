// Edits a text at given offsets; the rest of the text stays the same byte for byte. Stateless
// functions over values; safe from any thread.
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

/// The byte offset of a line and column; the size of the text when it is beyond the end.
MT_API size_t offset_of(std::string_view text, const Location& where);
/// The text with the edits applied. REQUIRES: the edits do not overlap.
MT_API std::string apply_edits(std::string text, std::vector<TextEdit> edits);

}  // namespace mtrain
