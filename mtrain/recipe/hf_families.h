// Families of Hugging Face models, as data: which model plugin reads which, and what the keys of
// their config.json mean to it that no setting of the plugin's stands for. Stateless.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

/// What a key of config.json is. A key without such a rule is mapped to the setting that names it
/// (FieldSpec::renamed_from), or refused. What is null counts as absent.
enum class HfKeyRule : uint8_t {
  harmless,  // does not change the function: any value
  only,      // changes it; only the values in `accepted` are what the plugin computes
  training,  // mapped; used in training only, so a recipe's own value goes before it
  dropout,   // used in training only, and the plugin has none there: named in a warning unless 0 or
             // what the key `accepted` says
  window     // how far attention sees: accepted where no sequence is longer
};

struct HfKey {
  std::string_view name;
  HfKeyRule rule = HfKeyRule::harmless;
  std::string_view accepted;  // only: JSON values, "|" between them; dropout: a key
  std::string_view reason;    // harmless: why; only: what the plugin computes
};

/// What the config class of transformers takes where config.json omits a key. A value is JSON, or
/// "=key": the value of that key.
struct HfDefault {
  std::string_view name;   // "rms_norm_eps"; "rope.scaling" for rope_type of rope_parameters
  std::string_view value;  // of an omitted key
  std::string_view null;   // of one that is null; empty: as if it were omitted. "null": none
};

struct HfFamily {
  std::string_view model_type;
  std::vector<std::string_view> architectures;
  std::string_view plugin;  // of models; empty: none reads it
  std::string_view lacks;   // no plugin: what of it is not built
  std::span<const HfKey> keys;
  std::span<const HfDefault> defaults = {};
};

MT_API const std::vector<HfFamily>& hf_families();
/// Null when no family is called so.
MT_API const HfFamily* find_hf_family(std::string_view model_type, std::string_view architecture);
/// The rule for a key: the family's (null: none), or the one that all families share. Null: there
/// is none.
MT_API const HfKey* find_hf_key(const HfFamily* family, std::string_view key);
/// The architectures that a model plugin reads.
MT_API std::vector<std::string> hf_architectures(std::string_view plugin);

}  // namespace mtrain
