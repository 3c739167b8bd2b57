#include "mtrain/train/hf_tokenizer_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mtrain/train/hf_export.h"

namespace mtrain {
namespace {

using Names = std::vector<std::string>;

constexpr const char* kNotOfTokenizer = "generation_config.json";

/// A file that a tokenizer plugin reads: the setting that names it, the names that the plugin knows
/// for it in a folder, and the one of Hugging Face.
struct Part {
  std::string setting;
  Names known;
  std::string name;
};

/// T5's tokenizer classes read spiece.model, those of decoders tokenizer.model.
std::string sentencepiece_name(const std::string& config) {
  const auto json = nlohmann::json::parse(config, nullptr, false);
  const std::string family = json.is_object() ? json.value("model_type", "") : "";
  return family.ends_with("t5") ? "spiece.model" : "tokenizer.model";
}

std::vector<Part> parts_of(const std::string& type, const std::string& config) {
  if (type == "hf") return {{"path", {"tokenizer.json"}, "tokenizer.json"}};
  if (type == "sentencepiece")
    return {{"path",
             {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "sentencepiece.model"},
             sentencepiece_name(config)}};
  if (type == "tiktoken")
    return {{"path", {"tokenizer.model", "tiktoken.model"}, "tokenizer.model"}};
  if (type == "gpt2_bpe")
    return {{"path", {"vocab.json", "encoder.json"}, "vocab.json"},
            {"merges", {"merges.txt", "vocab.bpe"}, "merges.txt"}};
  return {};
}

/// The file that a setting names, or that the plugin finds in `folder`; empty: none.
fs::path file_of(const Part& part, const Recipe& recipe, const fs::path& folder) {
  const Node* given = recipe.config.root().find("tokenizer." + part.setting);
  const std::string text = given && given->is_scalar() ? given->as_text() : "";
  std::error_code ignored;
  const fs::path path = text.empty() ? folder : recipe.directory / text;
  if (!fs::is_directory(path, ignored)) return path;
  for (const std::string& name : part.known)
    if (fs::is_regular_file(path / name, ignored)) return path / name;
  return {};
}

/// "t5." of "t5.spiece.model"; empty: the name has no such beginning.
std::string beginning_of(const fs::path& file, const Part& part) {
  const std::string name = file.filename().string();
  for (const std::string& known : part.known)
    if (name.ends_with(known)) return name.substr(0, name.size() - known.size());
  return {};
}

}  // namespace

std::vector<HfTokenizerFile> hf_tokenizer_files(const Recipe& recipe, const Tokenizer& tokenizer,
                                                const std::string& config) {
  std::vector<HfTokenizerFile> out;
  const fs::path folder = tokenizer.folder();
  if (folder.empty()) return out;
  const std::vector<Part> parts = parts_of(recipe.settings.tokenizer.type, config);
  const fs::path first = parts.empty() ? fs::path() : file_of(parts[0], recipe, folder);
  const auto known = [](const fs::path& file, const Part& part) {
    return std::ranges::find(part.known, file.filename().string()) != part.known.end();
  };
  if (first.empty() || known(first, parts[0])) {
    for (const fs::path& file : hf_side_files(folder))
      if (file.filename() != kNotOfTokenizer) out.push_back({file, file.filename().string()});
  } else if (const std::string beginning = beginning_of(first, parts[0]); !beginning.empty()) {
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json",
                             "added_tokens.json", "chat_template.jinja"}) {
      std::error_code ignored;
      const fs::path file = folder / (beginning + name);
      if (fs::is_regular_file(file, ignored)) out.push_back({file, name});
    }
  }
  for (const Part& part : parts) {
    const fs::path file = file_of(part, recipe, folder);
    if (file.empty()) continue;
    std::erase_if(out, [&](const HfTokenizerFile& one) {
      return one.name == part.name || one.file.filename() == file.filename();
    });
    out.push_back({file, part.name});
  }
  return out;
}

}  // namespace mtrain
