// Finds the tokens of a Hugging Face tokenizer that end a document, start a text and pad a batch.
// Stateless; thread-safe.
#pragma once
#include <filesystem>
#include <string>

#include "mtrain/tokenize/text_pipeline.h"

namespace mtrain::hf {

/// Looks in tokenizer_config.json and special_tokens_map.json next to the file, then for the usual
/// names. `eod`: the token that the recipe names; empty if it names none. Throws Error(config) if
/// there is no such token.
void find_special_names(const std::filesystem::path& file, const std::string& eod,
                        tokenize::PipelineParts& parts);

}  // namespace mtrain::hf
