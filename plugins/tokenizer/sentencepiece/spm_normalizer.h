// SentencePiece's normalization: rules by the longest match, blanks joined and escaped. Immutable;
// safe from any thread.
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
  /// Error(data) naming `name` when the model's rules are damaged.
  SpmNormalizer(const ModelFile& model, const std::string& name);
  void apply(tokenize::AlignedText& text) const override;

 private:
  /// What the text at `at` becomes, and how many of its bytes that takes.
  std::string_view rule(std::string_view text, size_t at, size_t& bytes) const;
  bool add_prefix_, remove_extra_, escape_, as_suffix_;
  std::optional<tokenize::Charsmap> map_;
  std::vector<std::string> untouched_;  // user-defined pieces, the longest first
};

}  // namespace mtrain::sentencepiece
