// Tokenizer: encodes text to token ids and decodes them. A plugin kind; the Registry makes it from
// the recipe's `tokenizer` section. The run owns it; datasets and samplers hold references.
// Immutable: const members are safe from any thread.
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

/// The inputs of a tokenizer's constructor, apart from its settings.
struct TokenizerContext {
  std::filesystem::path base_directory;  // the base of relative paths in the recipe
};

/// Bytes [begin, end) of a text.
struct TextSpan {
  uint32_t begin = 0, end = 0;
  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

struct EncodeOptions {
  /// Whether the text of a special token ("<|endoftext|>") becomes that token. If false, it is
  /// ordinary text, so that data cannot forge the end of a document or a turn of a chat.
  bool parse_special = false;
  /// Whether to add the special tokens around the text that the tokenizer's file defines: "<s> …",
  /// "[CLS] … [SEP]".
  bool add_special = false;
};

/// A token that does not represent text: the end of a document, a turn of a chat.
struct SpecialToken {
  std::string text;  // as in files and templates: "<|endoftext|>"
  int32_t id = 0;
};

class MT_API Tokenizer {
 public:
  static constexpr std::string_view kKind = "tokenizer";
  using Context = TokenizerContext;
  virtual ~Tokenizer() = default;

  /// The name in recipes.
  virtual std::string name() const = 0;
  /// The largest id of encode_to() and of all special tokens, plus one. A model's embedding may
  /// have more rows (`model.vocab_multiple`); they are excluded from the softmax, so they do not
  /// change the loss.
  virtual int64_t vocab_size() const = 0;
  /// The id that ends a document, if there is one.
  virtual std::optional<int32_t> eod() const { return std::nullopt; }
  /// The id that begins a text, and the id for padding, if there are such.
  virtual std::optional<int32_t> bos() const { return std::nullopt; }
  virtual std::optional<int32_t> pad() const { return std::nullopt; }
  /// All special tokens, in ascending order of ids.
  virtual std::vector<SpecialToken> special_tokens() const { return {}; }

  /// The folder of its files, which may also contain a chat template; empty: it has no files.
  virtual std::filesystem::path folder() const { return {}; }

  /// Appends the ids of `text` to `ids`. `text` may be any bytes; it never becomes special tokens.
  virtual void encode_to(std::string_view text, std::vector<int32_t>& ids) const = 0;
  /// Appends ids and, when `spans` is not null, the bytes of `text` that each id represents. Spans
  /// are whole characters, so they overlap when a character takes several tokens; a token that
  /// represents no text has an empty span. The default implementation is for tokenizers whose
  /// decode_bytes() restores the text; it adds no special tokens. Error(config) for parse_special,
  /// Error(data) when spans are requested and the text is not restored.
  virtual void encode_with(std::string_view text, const EncodeOptions& options,
                           std::vector<int32_t>& ids, std::vector<TextSpan>* spans) const;
  /// The bytes of these tokens; special tokens have none. The result may end inside a UTF-8
  /// character. Error(data) for an id outside the vocabulary.
  virtual std::string decode_bytes(std::span<const int32_t> ids) const = 0;
  /// A text that changes whenever the mapping changes; saved in checkpoints and compared on resume.
  virtual std::string identity() const = 0;
  /// A text that changes whenever the ids of some text change; saved with prepared data and
  /// compared before training. Excludes special tokens that text never becomes. Empty: nothing is
  /// compared.
  virtual std::string text_identity() const { return identity(); }

  std::vector<int32_t> encode(std::string_view text) const;
  /// The ids of each text, computed on `threads` threads (0: one per core). The result does not
  /// depend on the number of threads.
  std::vector<std::vector<int32_t>> encode_batch(std::span<const std::string_view> texts,
                                                 int threads = 0) const;
  /// decode_bytes() as valid UTF-8: each maximal run of bytes that could begin a character, but is
  /// not complete, becomes one U+FFFD.
  std::string decode(std::span<const int32_t> ids) const;
};

/// Decodes ids one by one, for streaming output; returns only whole characters. Refers to its
/// tokenizer. Not synchronised: one thread at a time.
class MT_API StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// The text that this id completes; may be empty.
  std::string push(int32_t id);
  /// The rest at the end: bytes of incomplete characters, as U+FFFD.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;   // recent ids: a few already decoded ones, which affect the spacing,
                               // then the pending ones
  size_t returned_ids_ = 0;    // the number of ids_ that are returned completely
  size_t returned_bytes_ = 0;  // bytes of decode_bytes(ids_) that are already returned
};

/// Throws Error(plugin) that names the tokenizer, the first id outside its vocab_size() and its
/// position. The embedding of a model would return zeros for such an id.
MT_API void check_ids(const Tokenizer& tokenizer, std::span<const int32_t> ids);

/// The special tokens that the tokenizer's file puts before a text, such as "<s>"; empty: none.
MT_API std::vector<int32_t> tokens_before_text(const Tokenizer& tokenizer);

/// Replaces bytes that are not part of well-formed UTF-8 by U+FFFD.
MT_API std::string repair_utf8(std::string_view bytes);

}  // namespace mtrain
