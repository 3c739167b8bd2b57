// AlignedText: a text during normalization, optionally with the position of each byte in the
// original text. A plain value. Not synchronised: one thread at a time.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/data/tokenizer.h"

namespace mtrain::tokenize {

struct MT_API AlignedText {
  std::string text;
  /// For each byte of `text`, the bytes of the original that it represents; unused when `aligned`
  /// is false.
  std::vector<TextSpan> origin;
  bool aligned = false;

  /// Starts with a part of the original at `offset`: each byte represents its whole character.
  /// `repair`: replaces bytes that are not UTF-8 by U+FFFD.
  void start(std::string_view original, size_t offset, bool with_origin, bool repair);
  /// Only bytes [begin, end).
  AlignedText slice(size_t begin, size_t end) const;
  /// The span of the original that bytes [begin, end) of `text` represent. REQUIRES: aligned.
  TextSpan span(size_t begin, size_t end) const;
};

/// Builds a new text from an old one: copies, replaces, inserts or omits characters. The caller
/// chooses which byte of the input an inserted text represents, usually the previous one.
class MT_API TextEditor {
 public:
  /// Refers to `in`, which must outlive the editor and must not change.
  explicit TextEditor(const AlignedText& in) : in_(in) {
    out_.aligned = in.aligned;
    out_.text.reserve(in.text.size() + 8);
    if (in.aligned) out_.origin.reserve(in.text.size() + 8);
  }
  /// Copies bytes [begin, end).
  void copy(size_t begin, size_t end);
  /// Appends `bytes`; each represents the same text as byte `like` of the input.
  void put(std::string_view bytes, size_t like);
  void put(char32_t c, size_t like);
  /// Removes the last bytes.
  void drop(size_t bytes) {
    out_.text.resize(out_.text.size() - bytes);
    if (out_.aligned) out_.origin.resize(out_.text.size());
  }
  size_t size() const { return out_.text.size(); }
  AlignedText take() { return std::move(out_); }

 private:
  const AlignedText& in_;
  AlignedText out_;
};

}  // namespace mtrain::tokenize
