// Tokenizer: text to token ids and back. A plugin kind; made by the Registry from the recipe's `tokenizer`
// section. Owned by the run; datasets and samplers hold references. Immutable once made: every const member
// is safe from any thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

/// What the maker of a tokenizer is given.
struct TokenizerContext {
  std::filesystem::path base_directory;  // relative paths in the recipe start here
};

class MT_API Tokenizer {
 public:
  static constexpr std::string_view kKind = "tokenizer";
  using Context = TokenizerContext;
  virtual ~Tokenizer() = default;

  /// The name under which recipes ask for it.
  virtual std::string name() const = 0;
  /// One more than the largest id that encode_to() or a special token may give.
  virtual int64_t vocab_size() const = 0;
  /// The id that ends a document, when there is one.
  virtual std::optional<int32_t> eod() const { return std::nullopt; }
  /// Appends the ids of `text` to `ids`. Text is arbitrary bytes; special tokens are never made from it.
  virtual void encode_to(std::string_view text, std::vector<int32_t>& ids) const = 0;
  /// The bytes of these tokens; special tokens give none. May end inside a UTF-8 character.
  /// Error(data) for an id outside the vocabulary.
  virtual std::string decode_bytes(std::span<const int32_t> ids) const = 0;
  /// Text that changes when the mapping changes: kept in checkpoints and compared at resume.
  virtual std::string identity() const = 0;

  std::vector<int32_t> encode(std::string_view text) const {
    std::vector<int32_t> ids;
    encode_to(text, ids);
    return ids;
  }
  /// decode_bytes() made valid UTF-8: each faulty byte becomes U+FFFD.
  std::string decode(std::span<const int32_t> ids) const;
};

/// Replaces every byte that is no part of well-formed UTF-8 by U+FFFD.
MT_API std::string repair_utf8(std::string_view bytes);

}  // namespace mtrain
