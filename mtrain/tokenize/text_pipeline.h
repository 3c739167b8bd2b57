// TextPipeline: a tokenizer made of parts: added tokens, a normalizer, a pre-tokenizer, a word
// model and decoding steps. The readers of file formats fill PipelineParts. Owns its parts.
// Immutable; safe from any thread.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/data/tokenizer.h"
#include "mtrain/tokenize/added_tokens.h"
#include "mtrain/tokenize/decode_step.h"
#include "mtrain/tokenize/normalizer.h"
#include "mtrain/tokenize/pre_tokenizer.h"
#include "mtrain/tokenize/token_table.h"
#include "mtrain/tokenize/word_encoder.h"

namespace mtrain::tokenize {

struct PipelineParts {
  std::string name, identity;
  std::string text_identity;     // see Tokenizer; empty: identity
  std::filesystem::path folder;  // the folder of its files
  std::unique_ptr<const TokenTable> tokens;
  std::unique_ptr<const WordModel> model;  // refers to tokens
  AddedTokens added;
  NormalizerPtr normalizer;       // null: text is not changed
  PreTokenizerPtr pre_tokenizer;  // null: a text is one word
  /// Splits text into words with this scanner only; pre_tokenizer is not used.
  KnownPattern pattern = KnownPattern::none;
  /// The texts of `tokens` are bytes that decoding joins; otherwise decoding applies `decoder`.
  bool tokens_are_bytes = false;
  std::vector<DecodeStepPtr> decoder;  // empty: see join_with_blanks
  bool join_with_blanks = false;       // without a decoder: join texts with spaces
  std::vector<int32_t> before, after;  // around a text with EncodeOptions::add_special
  bool trim_spans = false;             // trim white space of tokens from spans
  bool blank_was_added = false;        // for trim_spans: one space of the first token was added
  std::optional<int32_t> eod, bos, pad;
  std::optional<int32_t> unknown;  // represents text, so decoding shows it although it is special
};

class MT_API TextPipeline : public Tokenizer {
 public:
  explicit TextPipeline(PipelineParts parts);
  std::string name() const override { return parts_.name; }
  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> eod() const override { return parts_.eod; }
  std::optional<int32_t> bos() const override { return parts_.bos; }
  std::optional<int32_t> pad() const override { return parts_.pad; }
  std::vector<SpecialToken> special_tokens() const override;
  std::filesystem::path folder() const override { return parts_.folder; }
  void encode_to(std::string_view text, std::vector<int32_t>& ids) const override;
  void encode_with(std::string_view text, const EncodeOptions& options, std::vector<int32_t>& ids,
                   std::vector<TextSpan>* spans) const override;
  std::string decode_bytes(std::span<const int32_t> ids) const override;
  std::string identity() const override { return parts_.identity; }
  std::string text_identity() const override {
    return parts_.text_identity.empty() ? parts_.identity : parts_.text_identity;
  }

 protected:
  const PipelineParts& parts() const { return parts_; }

 private:
  struct Output {
    std::vector<int32_t>& ids;
    std::vector<TextSpan>* spans;
  };
  void encode_part(std::string_view part, size_t offset, bool with_special,
                   const Output& out) const;
  void encode_words(AlignedText text, const Output& out) const;
  void trim(std::vector<TextSpan>& spans, size_t first, std::span<const int32_t> ids) const;
  std::string_view token_text(int32_t id) const;

  PipelineParts parts_;
  WordEncoder encoder_;
  int64_t vocab_size_ = 0;
  bool raw_ = false;  // text is never changed, so any bytes can be encoded
};

}  // namespace mtrain::tokenize
