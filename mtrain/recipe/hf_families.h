// Families of Hugging Face models, as data: the model plugin for each, and the treatment of keys of
// config.json without an equivalent setting. Stateless.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

/// How a key of config.json is treated. A key without a rule is mapped to the setting that lists it
/// (FieldSpec::renamed_from), or refused. A null value counts as absent.
enum class HfKeyRule : uint8_t {
  harmless,  // does not change the model's function: any value is accepted
  only,      // changes the function: only the values in `accepted` are supported
  training,  // mapped, and used only in training, so the recipe's own value takes precedence
  dropout,   // a dropout that the plugin does not implement: a warning unless it is 0 or equals the
             // value of the key `accepted`
  window     // an attention window: accepted if no sequence is longer
};

struct HfKey {
  std::string_view name;
  HfKeyRule rule = HfKeyRule::harmless;
  std::string_view accepted;  // only: JSON values, "|" between them; dropout: a key
  std::string_view reason;    // harmless: why; only: what the plugin supports
};

/// The default of the config class of transformers for a key that config.json omits. A value is
/// JSON, or "=key" for the value of another key.
struct HfDefault {
  std::string_view name;   // "rms_norm_eps"; "rope.scaling" for rope_type of rope_parameters
  std::string_view value;  // if the key is omitted
  std::string_view null;  // if the key is null; empty: the same as if it were omitted; "null": none
};

struct HfFamily {
  std::string_view model_type;
  std::vector<std::string_view> architectures;
  std::string_view plugin;  // the model plugin; empty: none
  std::string_view lacks;   // without a plugin: the feature that is not built
  std::span<const HfKey> keys;
  std::span<const HfDefault> defaults = {};
};

MT_API const std::vector<HfFamily>& hf_families();
/// Null for an unknown family.
MT_API const HfFamily* find_hf_family(std::string_view model_type, std::string_view architecture);
/// The rule for a key: that of `family` (may be null), or else that of all families. Null if there
/// is none.
MT_API const HfKey* find_hf_key(const HfFamily* family, std::string_view key);
/// The architectures that a model plugin supports.
MT_API std::vector<std::string> hf_architectures(std::string_view plugin);

}  // namespace mtrain
