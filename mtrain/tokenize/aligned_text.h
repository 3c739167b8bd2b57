// AlignedText: a text on its way through normalizers, which may remember where in the original each
// byte came from. A plain value; for one thread at a time.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/data/tokenizer.h"

namespace mtrain::tokenize {

struct MT_API AlignedText {
  std::string text;
  /// For each byte of `text`, the bytes of the original it stands for; unused where nobody asks for
  /// spans.
  std::vector<TextSpan> origin;
  bool aligned = false;

  /// Begins with a part of the original at `offset`: each byte stands for its whole character.
  /// `repair`: a byte that is no UTF-8 becomes U+FFFD.
  void start(std::string_view original, size_t offset, bool with_origin, bool repair);
  /// Bytes [begin, end) alone.
  AlignedText slice(size_t begin, size_t end) const;
  /// The span of the original that bytes [begin, end) of `text` stand for. REQUIRES: aligned.
  TextSpan span(size_t begin, size_t end) const;
};

/// Builds the next state of a text from the one before: characters copied, replaced, inserted or
/// left out. What is inserted stands for what the caller says, mostly the neighbour before it.
class MT_API TextEditor {
 public:
  /// Keeps referring to `in`, whose text must not change meanwhile.
  explicit TextEditor(const AlignedText& in) : in_(in) {
    out_.aligned = in.aligned;
    out_.text.reserve(in.text.size() + 8);
    if (in.aligned) out_.origin.reserve(in.text.size() + 8);
  }
  /// Bytes [begin, end) as they are.
  void copy(size_t begin, size_t end);
  /// `bytes`, all standing for what byte `like` of the input stands for.
  void put(std::string_view bytes, size_t like);
  void put(char32_t c, size_t like);
  /// Takes the last bytes back.
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
