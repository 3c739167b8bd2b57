// Where transformers 5 and a folder's tokenizer.json disagree on blanks. Stateless functions; safe
// from any thread.
#pragma once
#include <filesystem>
#include <string>

#include "mtrain/base/export.h"

namespace mtrain::chat {

/// True for the folder of a Llama tokenizer whose tokenizer.json adds a blank to each text after a
/// special token, while its tokenizer_config.json lacks `legacy: true`: transformers 5 then makes a
/// tokenizer of its own, which adds a blank only at the start. mtrain, transformers 4 and the
/// tokenizers library follow tokenizer.json.
MT_API bool lacks_legacy(const std::filesystem::path& folder);
/// This tokenizer_config.json with `legacy: true`, with which transformers 5 follows
/// tokenizer.json.
MT_API std::string with_legacy(const std::string& tokenizer_config);

}  // namespace mtrain::chat
