// Reads config.json of a Hugging Face folder: the model plugin for it, the settings that it
// determines, and the keys that the plugin does not support. Never ignores a key silently.
// Stateless functions; safe from any thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mtrain/config/schema.h"

namespace mtrain {

/// One setting that config.json decides: "model.layers" = 5, called "num_hidden_layers" there.
struct HfSetting {
  std::string path, theirs;
  Node value;
  bool training = false;  // used in training only: a recipe's own value goes before it
  bool omitted =
      false;  // config.json does not say it: the value is the default of the family's config class
};

/// A key whose value the plugin does not honour.
struct HfRefusal {
  std::string key;  // "hidden_act", "rope_scaling.beta_fast"
  std::string
      what;  // "hidden_act is \"gelu\"; the model plugin llama computes a gated MLP with silu"
  std::string fix;  // what the user can do
};

/// The model that a config.json is read for.
struct HfTarget {
  std::string plugin;
  std::vector<const Schema*> schemas;  // of the section and of the plugin
  int64_t seq_length = 0;
  std::vector<std::string> ignored;  // model.init_ignore
};

struct HfFolderConfig {
  std::vector<HfSetting> settings;
  std::vector<HfRefusal> refused;     // one of "architectures" stands alone
  std::vector<std::string> dropouts;  // "attn_pdrop 0.1": what the plugin trains without
};

/// Throws Error(checkpoint) where the text is no JSON object.
MT_API HfFolderConfig read_hf_config(const std::string& config_json, const std::string& file_name,
                                     const HfTarget& target);

/// The model plugin that reads such a folder: with `model.type` of this name and `model.init_from`
/// of the folder a recipe has all settings. Throws Error(config) naming the architecture where
/// there is none.
MT_API std::string hf_model_plugin(const std::string& config_json, const std::string& file_name);

/// Only the settings, through each field's known foreign names; for no plugin in particular.
MT_API std::vector<HfSetting> hf_settings(const std::string& config_json,
                                          const std::string& file_name,
                                          const std::vector<const Schema*>& schemas);

}  // namespace mtrain
