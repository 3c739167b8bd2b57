// StreamedText shows a text on a terminal while it is generated. What it has shown stays a
// beginning of the final text: it holds back what may still change. For one thread.
#pragma once
#include <cstddef>
#include <string>

namespace mtrain {

class StreamedText {
 public:
  /// `end_text`: ends the text and is not part of it; empty: none. `trimmed`: blanks at both ends
  /// are not part of the text.
  StreamedText(std::string end_text, bool trimmed)
      : end_text_(std::move(end_text)), trimmed_(trimmed) {}
  /// What to print now, of the text so far.
  std::string next(const std::string& text);
  /// What to print at the end, of the final text.
  std::string rest(const std::string& text);

 private:
  std::string end_text_;
  bool trimmed_;
  size_t shown_ = 0;  // bytes
};

}  // namespace mtrain
