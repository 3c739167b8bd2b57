#include "mtrain/chat/llama_spaces.h"

#include <nlohmann/json.hpp>

#include "mtrain/base/file.h"

namespace mtrain::chat {
namespace {

using Json = nlohmann::ordered_json;

Json parsed(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored) ? Json::parse(read_file(file), nullptr, false) : Json();
}

/// Whether this normalizer, or one in its list, adds a blank to each text.
bool prepends(const Json& normalizer) {
  if (!normalizer.is_object()) return false;
  if (normalizer.value("type", "") == "Prepend") return true;
  const auto list = normalizer.find("normalizers");
  return list != normalizer.end() && list->is_array() &&
         std::any_of(list->begin(), list->end(), prepends);
}

}  // namespace

bool lacks_legacy(const fs::path& folder) {
  if (folder.empty()) return false;
  const Json config = parsed(folder / "tokenizer_config.json");
  if (!config.is_object() || !config.contains("tokenizer_class") ||
      !config["tokenizer_class"].is_string())
    return false;
  const std::string type = config["tokenizer_class"];
  if (type != "LlamaTokenizer" && type != "LlamaTokenizerFast") return false;
  const auto legacy = config.find("legacy");
  if (legacy != config.end() && *legacy == true) return false;
  const Json tokenizer = parsed(folder / "tokenizer.json");
  return tokenizer.is_object() && tokenizer.contains("normalizer") &&
         prepends(tokenizer["normalizer"]);
}

std::string with_legacy(const std::string& tokenizer_config) {
  Json config = Json::parse(tokenizer_config, nullptr, false);
  if (!config.is_object()) return tokenizer_config;
  config["legacy"] = true;
  return config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mtrain::chat
