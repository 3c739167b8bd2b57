// hf_tokenizer_files(): the files of a run's tokenizer under the names by which transformers finds
// them in a model's folder. Stateless; safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

struct HfTokenizerFile {
  fs::path file;
  std::string name;  // in the model's folder: "tokenizer.json"
};

/// Empty for a tokenizer without files. A file with a name of its own (`my.json`,
/// `t5.spiece.model`) gets the name that the family of `config` (a config.json) has for it; of the
/// files next to it, only those that share the beginning of its name belong to it
/// (`t5.tokenizer_config.json`).
std::vector<HfTokenizerFile> hf_tokenizer_files(const Recipe& recipe, const Tokenizer& tokenizer,
                                                const std::string& config);

}  // namespace mtrain
