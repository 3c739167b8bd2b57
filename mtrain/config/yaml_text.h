// TextIndex: the text of a YAML file by line and offset, and the checks of its characters. Used by
// yaml_load.cc and yaml_mistakes.cc only. Immutable after construction; safe from any thread.
#pragma once
#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "mtrain/config/location.h"
#include "mtrain/config/report.h"

namespace mtrain {

class TextIndex {
 public:
  /// Skips a byte-order mark: offsets count from the byte after it, like the parser's.
  explicit TextIndex(SourcePtr source);

  std::string_view text() const { return text_; }
  /// The text from `offset` on; empty beyond the end.
  std::string_view at(size_t offset) const { return text_.substr(std::min(offset, text_.size())); }
  Location place(size_t offset) const;

  /// Reports broken UTF-8, UTF-16 and control characters; false when there were any.
  bool check_characters(Report& report) const;
  /// The offsets of characters that make a text look different from what it contains.
  std::vector<size_t> deceptive_offsets() const;
  /// The end of the quoted string that starts at `offset` (a tag or anchor may precede it). Returns
  /// `offset` for a block, and an offset beyond the text when the closing quote is missing.
  size_t quoted_end(size_t offset) const;
  /// The offset of a tab before the first visible character of the line of `offset`.
  std::optional<size_t> tab_in_indentation(size_t offset) const;
  /// True when only spaces precede `offset` on its line.
  bool first_on_line(size_t offset) const;

 private:
  size_t characters_before(size_t offset) const;
  size_t line_begin(size_t offset) const;

  SourcePtr source_;
  std::string_view text_;
  std::vector<size_t> lines_;       // offset of each line's first byte
  std::vector<size_t> characters_;  // the number of characters before each block of bytes
};

}  // namespace mtrain
