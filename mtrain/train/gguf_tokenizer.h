// The tokenizer of a Hugging Face folder as metadata of a GGUF file: byte-level BPE ("gpt2" there)
// and SentencePiece's BPE ("llama" there), both from tokenizer.json, with the keys that llama.cpp's
// converter writes. Stateless function.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/base/file.h"
#include "mtrain/train/gguf_file.h"

namespace mtrain {

/// Adds tokenizer.ggml.* to the header. `folder`: has tokenizer.json and, if there is one,
/// tokenizer_config.json; `config`: the model's config.json; `rows`: of the embedding matrix; ids
/// without a token get a placeholder. Throws Error(config) that names what llama.cpp cannot
/// express.
void add_gguf_tokenizer(const fs::path& folder, const std::string& config, int64_t rows,
                        bool is_gemma, GgufHeader& header);

}  // namespace mtrain
