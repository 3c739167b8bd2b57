#include "mtrain/recipe/hf_generation.h"

#include <nlohmann/json.hpp>

#include "mtrain/recipe/hf_json.h"

namespace mtrain {
using namespace hf;

std::string hf_generation_text(const std::string& config_json, const std::string& source,
                               int64_t vocab_size) {
  const Json config = parse_source(config_json), theirs = Json::parse(source, nullptr, false);
  if (!theirs.is_object()) return source;
  Json out = theirs;
  for (const auto& [key, ids] : theirs.items()) {
    const auto own = config.find(key);
    const bool other = key == "decoder_start_token_id" && own != config.end() && *own != ids;
    if (!other && (!key.ends_with("_token_id") || !is_beyond(ids, vocab_size))) continue;
    if (own == config.end() || own->is_null())
      out.erase(key);
    else
      out[key] = *own;
  }
  return out == theirs ? source : config_text(out);
}

std::string hf_generation_text(const std::string& config_json) {
  const Json config = parse_source(config_json);
  Json out = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"})
    if (config.is_object() && config.contains(key)) out[key] = config[key];
  return config_text(out);
}

}  // namespace mtrain
