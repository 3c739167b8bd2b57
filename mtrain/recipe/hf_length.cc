#include "mtrain/recipe/hf_length.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace mtrain {

bool hf_gives_length(const HfKey& key) {
  return key.rule == HfKeyRule::harmless && key.keep &&
         (key.write_setting == "seq_length" || key.write_setting == "rope.original_max_positions");
}

int64_t hf_length_of(const std::string& config_json, const std::string& file) {
  const hf::Json length = hf::parse(config_json, file).value("max_position_embeddings", hf::Json());
  return length.is_number_integer() ? length.get<int64_t>() : 0;
}

hf::Json hf_kept_value(const HfKey& key, const hf::Json& theirs, int64_t trained,
                       const HfModel& model) {
  if (!hf_gives_length(key) || !theirs.is_number_integer()) return theirs;
  const std::string scaling = brief(model.value("rope.scaling"));
  if (scaling == "dynamic" || scaling == "longrope") return theirs;
  return std::max(theirs.get<int64_t>(), trained);
}

std::string hf_config_with_length(const std::string& config_json, const std::string& file,
                                  const HfFamilies& families, const HfFamily& family,
                                  const HfModel& model, int64_t trained) {
  hf::Json config = hf::parse(config_json, file);
  const hf::Json before = config;
  for (auto& [name, value] : config.items())
    if (const HfKey* key = families.key(&family, name))
      value = hf_kept_value(*key, value, trained, model);
  return config == before ? config_json : hf::config_text(config);
}

void warn_of_length(const Recipe& recipe, const HfFolderConfig& config, const std::string& file,
                    Report& report) {
  constexpr const char* kLength = "model.seq_length";
  const Node* length = recipe.config.root().find(kLength);
  // Dynamic scaling fits its frequencies to any length.
  const bool fits = std::ranges::any_of(config.settings, [](const HfSetting& setting) {
    return setting.path == "model.rope.scaling" && brief(setting.value) == "dynamic";
  });
  if (fits || config.length <= 0 || !length || !length->is(NodeKind::integer) ||
      length->as_int() <= config.length)
    return;
  report
      .warning(
          "init-from-length", kLength, length->loc(),
          cat(length->as_int(), " is longer than the sequences of ", file, ", where ",
              config.length_key, " is ", config.length,
              ": its weights were not trained with rotary positions from ", config.length, " on"))
      .fix(cat("set ", kLength, "=", config.length,
               " or less, or train enough long sequences for the model to learn them"));
}

}  // namespace mtrain
