// The tokenizer of a Hugging Face folder as metadata of a GGUF file: byte-level BPE ("gpt2" there)
// and SentencePiece's BPE ("llama" there), both from tokenizer.json, with the keys that llama.cpp's
// converter writes. Stateless function.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/base/file.h"
#include "mtrain/train/gguf_file.h"

namespace mtrain {

/// Adds tokenizer.ggml.* to the header. `path`: tokenizer.json, also as x.tokenizer.json or under
/// another name, or its folder; x.tokenizer_config.json is read, too, if there is one. `config`:
/// the model's config.json; `rows`: of the embedding matrix; ids without a token get a placeholder.
/// `chat_template`: empty: the one next to the tokenizer, if any.
/// Throws Error(config) that names what llama.cpp cannot express.
void add_gguf_tokenizer(const fs::path& path, const std::string& config, int64_t rows,
                        bool is_gemma, const std::string& chat_template, GgufHeader& header);

}  // namespace mtrain
