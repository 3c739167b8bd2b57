// Which of a Hugging Face tokenizer's tokens end a document, begin a text and fill a batch.
// Stateless.
#pragma once
#include <filesystem>
#include <string>

#include "mtrain/tokenize/text_pipeline.h"

namespace mtrain::hf {

/// Asks tokenizer_config.json and special_tokens_map.json beside the file, then the names that are
/// usual. `eod`: the token that the recipe names; empty when it names none. Error(config) when
/// there is no such token.
void find_special_names(const std::filesystem::path& file, const std::string& eod,
                        tokenize::PipelineParts& parts);

}  // namespace mtrain::hf
