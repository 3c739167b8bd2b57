// Writes a model as a GGUF file for llama.cpp, with the names, keys, types and arrangements that
// its converter gives a Hugging Face folder of the same model. Stateless functions; one thread.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/base/file.h"
#include "mtrain/train/gguf_file.h"
#include "mtrain/train/hf_export.h"

namespace mtrain {

struct GgufModel {
  std::string config;              // text of the config.json of the same model
  fs::path tokenizer;              // tokenizer.json, or its folder
  std::string chat_template = {};  // empty: the one next to the tokenizer, if any
  std::string name;                // general.name
  GgmlType type = GgmlType::bf16;  // of matrices; vectors and norms are f32
};

/// Writes the file `to`, which must not exist; it appears complete or not at all. `source`: the
/// tensors of the folder, as fp32. Throws Error(config) that names the family, tensor or part of
/// the tokenizer that llama.cpp does not have.
MT_API HfExported write_gguf(const fs::path& to, const GgufModel& model, HfTensorSource& source);

}  // namespace mtrain
