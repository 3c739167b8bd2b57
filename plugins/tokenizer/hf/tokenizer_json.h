// Reads Hugging Face's tokenizer.json into the parts of a pipeline. Everything is checked while
// reading; the result can encode any text. Stateless; thread-safe.
#pragma once
#include <simdjson.h>

#include <optional>
#include <string>

#include "json_item.h"
#include "mtrain/tokenize/text_pipeline.h"

namespace mtrain::hf {

/// Throws Error(data) with the path of the first fault: "tokenizer.json: model.merges[12]: …".
/// `name` is the file's name.
tokenize::PipelineParts read_tokenizer_json(const simdjson::padded_string& text,
                                            const std::string& name);

// The sections of the file.
struct ModelParts {
  std::unique_ptr<const tokenize::TokenTable> tokens;
  std::unique_ptr<const tokenize::WordModel> model;
  /// Splits a text that no pre-tokenizer splits, without changing a token; may be null.
  tokenize::PreTokenizerPtr neutral_split;
  std::optional<int32_t> unknown;  // the token for text that is not in the vocabulary
};
/// `by_bytes`: the vocabulary is in the byte alphabet, and words are bytes. Special tokens of
/// `added` never result from text.
ModelParts read_model(const JsonItem& model, const tokenize::AddedTokens& added, bool by_bytes);
tokenize::NormalizerPtr read_normalizer(const JsonItem& item);
/// `as_bytes`: a final byte-level step leaves bytes unchanged.
tokenize::PreTokenizerPtr read_pre_tokenizer(const JsonItem& item, bool as_bytes);
void read_decoder(const JsonItem& item, std::vector<tokenize::DecodeStepPtr>& out);
/// Reads the tokens that are put around a text, and how spans are trimmed.
void read_post_processor(const JsonItem& item, tokenize::PipelineParts& parts);
/// A `pattern` member: {"Regex": …} or {"String": …}.
tokenize::Regex read_pattern(const JsonItem& item);
tokenize::PrependScheme read_prepend_scheme(const JsonItem& item);

}  // namespace mtrain::hf
