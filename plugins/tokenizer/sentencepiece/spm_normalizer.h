// SentencePiece's normalization: replacement rules by longest match, blanks merged and escaped.
// Immutable; thread-safe.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model_file.h"
#include "mtrain/tokenize/charsmap.h"
#include "mtrain/tokenize/normalizer.h"

namespace mtrain::sentencepiece {

constexpr std::string_view kEscapedBlank = "\xE2\x96\x81";  // U+2581

class SpmNormalizer final : public tokenize::Normalizer {
 public:
  /// Throws Error(data) that names `name` if the model's rules are damaged.
  SpmNormalizer(const ModelFile& model, const std::string& name);
  void apply(tokenize::AlignedText& text) const override;

 private:
  /// The replacement of the text at `at`, and the number of bytes that it replaces.
  std::string_view rule(std::string_view text, size_t at, size_t& bytes) const;
  bool add_prefix_, remove_extra_, escape_, as_suffix_;
  std::optional<tokenize::Charsmap> map_;
  std::vector<std::string> untouched_;  // user-defined pieces, longest first
};

}  // namespace mtrain::sentencepiece
