// Reads config.json of a Hugging Face folder: the model plugin for it, the settings that it
// determines, and the keys that the plugin does not support. Never ignores a key silently.
// Stateless functions; safe from any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/catalog.h"
#include "mtrain/recipe/hf_families.h"

namespace mtrain {

/// A setting whose value is in config.json: "model.layers" = 5, called "num_hidden_layers" there.
struct HfSetting {
  std::string path, theirs;  // theirs: empty for a setting that all models of the family have
  Node value;
  bool training = false;  // used only in training: the recipe's own value takes precedence
  bool omitted =
      false;           // not in config.json: the value is the default of the family's config class
  bool warns = false;  // training: a different value in the recipe is worth a warning
  Node same_as;        // a second value that means the same: 0, if HfFamily::zeros says that 0
                       // stands for `value`; null: none
  bool repeats = false;  // a list for the blocks, which is repeated: [1, 0] is [1, 0, 1, 0]
};

/// A key whose value the plugin does not support.
struct HfRefusal {
  std::string key;  // "hidden_act", "rope_scaling.beta_fast"
  std::string
      what;  // "hidden_act is \"gelu\"; the model plugin llama computes a gated MLP with silu only"
  std::string fix;  // what the user can do
};

/// The settings of a model plugin; null: there is no such plugin.
using PluginSchema = std::function<const Schema*(std::string_view plugin)>;
/// Looks up the schemas in a catalog, which must outlive the result.
MT_API PluginSchema model_schemas(const SchemaCatalog& catalog);

/// The model for which a config.json is read.
struct HfTarget {
  const HfFamilies& families;
  std::string plugin;
  std::vector<const Schema*> schemas;  // of the section and of the plugin
  PluginSchema schema_of;              // of other plugins, for hints
  int64_t seq_length = 0;
  std::vector<std::string> ignored;  // model.init_ignore: keys, and settings of `implied`
};

struct HfFolderConfig {
  std::vector<HfSetting> settings;
  /// Settings that neither config.json nor the family's file gives, with the values that the
  /// family's models compute with: the plugin's defaults. A recipe with other values trains another
  /// function than the folder's.
  std::vector<HfSetting> implied = {};
  std::vector<HfRefusal> refused;  // if "architectures" is refused, no other key is read
  std::vector<std::string>
      dropouts;  // "attn_pdrop 0.1": dropouts that the plugin does not implement
  std::vector<std::string> absent = {};  // keys of HfTarget::ignored that config.json does not have
  /// The longest sequence of the model's training, and its key (hf_length.h); 0: not given.
  int64_t length = 0;
  std::string length_key = {};
};

/// Throws Error(checkpoint) if the text is not a JSON object.
MT_API HfFolderConfig read_hf_config(const std::string& config_json, const std::string& file_name,
                                     const HfTarget& target);

/// Whether the folder's architecture is that of the family with a head of scores.
MT_API bool hf_has_scores(const std::string& config_json, const std::string& file_name,
                          const HfFamily& family);
/// The names of labels in config.json (id2label), in their order; empty: none but LABEL_0 ….
MT_API std::vector<std::string> hf_label_names(const std::string& config_json,
                                               const std::string& file_name);

/// The model plugin that reads such a folder. A recipe with this `model.type` and `model.init_from`
/// of the folder needs no other model settings. Throws Error(config) that names the architecture if
/// there is none.
MT_API std::string hf_model_plugin(const std::string& config_json, const std::string& file_name,
                                   const HfFamilies& families, const PluginSchema& schema_of);

/// The family by which a plugin reads the folder's tensors: the folder's own family; if that
/// belongs to another plugin and was accepted nevertheless, the plugin's first family.
MT_API const HfFamily& hf_family_of(const std::string& config_json, const std::string& file_name,
                                    const HfFamilies& families, const std::string& plugin);

}  // namespace mtrain
