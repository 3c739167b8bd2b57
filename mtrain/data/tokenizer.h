// Tokenizer: text to token ids and back. A plugin kind; made by the Registry from the recipe's
// `tokenizer` section. Owned by the run; datasets and samplers hold references. Immutable once
// made: every const member is safe from any thread.
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

/// Bytes [begin, end) of a text.
struct TextSpan {
  uint32_t begin = 0, end = 0;
  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

struct EncodeOptions {
  /// Whether the text of a special token ("<|endoftext|>") becomes that token. Off, it is text like
  /// any other, so that nobody's data can forge the end of a document or the turn of a chat.
  bool parse_special = false;
  /// Whether to put around the text what the tokenizer's file asks for: "<s> …", "[CLS] … [SEP]".
  bool add_special = false;
};

/// A token that stands for no text of its own: the end of a document, the turn of a chat.
struct SpecialToken {
  std::string text;  // as files and templates write it: "<|endoftext|>"
  int32_t id = 0;
};

class MT_API Tokenizer {
 public:
  static constexpr std::string_view kKind = "tokenizer";
  using Context = TokenizerContext;
  virtual ~Tokenizer() = default;

  /// The name under which recipes ask for it.
  virtual std::string name() const = 0;
  /// One more than the largest id that encode_to() or a special token may give. A model's table of
  /// tokens may have more rows (`model.vocab_multiple`): they take part in no softmax, so they
  /// change no loss.
  virtual int64_t vocab_size() const = 0;
  /// The id that ends a document, when there is one.
  virtual std::optional<int32_t> eod() const { return std::nullopt; }
  /// The id that begins a text, and the one that fills a batch, when there are such.
  virtual std::optional<int32_t> bos() const { return std::nullopt; }
  virtual std::optional<int32_t> pad() const { return std::nullopt; }
  /// All special tokens, by rising id.
  virtual std::vector<SpecialToken> special_tokens() const { return {}; }

  /// The folder that its files lie in, where a chat template may lie beside them; empty: it has no
  /// files.
  virtual std::filesystem::path folder() const { return {}; }

  /// Appends the ids of `text` to `ids`. Text is arbitrary bytes; special tokens are never made
  /// from it.
  virtual void encode_to(std::string_view text, std::vector<int32_t>& ids) const = 0;
  /// Appends ids and, to `spans` when it is not null, the bytes of `text` that each id stands for:
  /// whole characters, so neighbours overlap where a character takes several tokens; tokens that
  /// stand for no text are empty spans. The default serves tokenizers whose decode_bytes() gives
  /// the text back, and knows no special tokens in text, and puts none around it. Error(data) where
  /// that does not hold.
  virtual void encode_with(std::string_view text, const EncodeOptions& options,
                           std::vector<int32_t>& ids, std::vector<TextSpan>* spans) const;
  /// The bytes of these tokens; special tokens give none. May end inside a UTF-8 character.
  /// Error(data) for an id outside the vocabulary.
  virtual std::string decode_bytes(std::span<const int32_t> ids) const = 0;
  /// Text that changes when the mapping changes: kept in checkpoints and compared at resume.
  virtual std::string identity() const = 0;
  /// Text that changes when the ids of text do: kept with prepared data and compared when it is
  /// trained on. Special tokens that text never becomes are no part of it. Empty: text has no ids
  /// of its own, and nothing is compared.
  virtual std::string text_identity() const { return identity(); }

  std::vector<int32_t> encode(std::string_view text) const;
  /// The ids of each text, on `threads` threads (0: one for each core). The result does not depend
  /// on how many.
  std::vector<std::vector<int32_t>> encode_batch(std::span<const std::string_view> texts,
                                                 int threads = 0) const;
  /// decode_bytes() made valid UTF-8: what is no character becomes U+FFFD, one for each run of
  /// bytes that could have begun one.
  std::string decode(std::span<const int32_t> ids) const;
};

/// Text from ids as they come, for a reader who waits: gives whole characters only. Refers to its
/// tokenizer; for one thread at a time.
class MT_API StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// The text that this id completes; may be empty.
  std::string push(int32_t id);
  /// What is left at the end: bytes that never became a character, as U+FFFD.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;  // a few before those not yet told, which decide how these are spaced
  size_t told_ids_ = 0;       // how many of ids_ are told in full
  size_t told_bytes_ = 0;     // bytes of decode_bytes(ids_) that are told
};

/// Replaces every byte that is no part of well-formed UTF-8 by U+FFFD.
MT_API std::string repair_utf8(std::string_view bytes);

}  // namespace mtrain
