#include "spm_normalizer.h"

#include <algorithm>

#include "mtrain/tokenize/unicode.h"

namespace mtrain::sentencepiece {

using namespace tokenize;

SpmNormalizer::SpmNormalizer(const ModelFile& model, const std::string& name)
    : add_prefix_(model.add_dummy_prefix),
      remove_extra_(model.remove_extra_blanks),
      escape_(model.escape_blanks),
      as_suffix_(model.blank_as_suffix) {
  if (!model.charsmap.empty()) map_.emplace(model.charsmap, name);
  for (const auto& piece : model.pieces)
    if (piece.type == PieceType::user_defined) untouched_.push_back(piece.text);
  std::stable_sort(untouched_.begin(), untouched_.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
}

std::string_view SpmNormalizer::rule(std::string_view text, size_t at, size_t& bytes) const {
  const std::string_view rest = text.substr(at);
  for (const auto& piece : untouched_)
    if (rest.starts_with(piece)) return bytes = piece.size(), rest.substr(0, bytes);
  if (map_)
    if (auto match = map_->longest(rest.substr(0, std::min<size_t>(rest.size(), 256)))) {
      bytes = match->bytes;
      return match->replacement;
    }
  bytes = decode_char(text, at).bytes;
  return rest.substr(0, bytes);
}

void SpmNormalizer::apply(AlignedText& text) const {
  const std::string_view in = text.text;
  const std::string_view blank = escape_ ? kEscapedBlank : " ";
  size_t at = 0, bytes = 0;
  while (remove_extra_ && at < in.size() && rule(in, at, bytes) == " ") at += bytes;
  TextEditor edit(text);
  if (at < in.size() && add_prefix_ && !as_suffix_) edit.put(blank, at);
  bool after_blank = remove_extra_;
  size_t trailing = 0;  // number of bytes of blanks at the end of the output
  const size_t first = edit.size();
  while (at < in.size()) {
    std::string_view piece = rule(in, at, bytes);
    while (after_blank && piece.starts_with(' ')) piece.remove_prefix(1);
    for (size_t i = 0; i < piece.size();) {
      const size_t size = char_bytes(piece[i]);
      const bool is_blank = piece[i] == ' ';
      edit.put(is_blank ? blank : piece.substr(i, size), at + (bytes == piece.size() ? i : 0));
      const bool counts = is_blank || piece.substr(i, size) == blank;
      trailing = counts ? trailing + (is_blank ? blank.size() : size) : 0;
      i += size;
    }
    if (!piece.empty()) after_blank = remove_extra_ && piece.back() == ' ';
    at += bytes;
  }
  if (remove_extra_) {
    if (edit.size() - first == trailing)
      trailing = edit.size();  // if nothing else is left, the prefix is removed, too
    edit.drop(trailing);
  }
  if (add_prefix_ && as_suffix_ && edit.size() > 0) edit.put(blank, in.size() - 1);
  text = edit.take();
}

}  // namespace mtrain::sentencepiece
