// Settings of a Hugging Face folder's model that its config.json does not contain because all
// models of the family have the same value; the values for which a setting of 0 stands; conversion
// between numbers of config.json and settings. Used by hf_config.cc and hf_write_config.cc.
// Stateless functions; safe from any thread.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/recipe/hf_config.h"
#include "mtrain/recipe/hf_json.h"

namespace mtrain {

/// The number in config.json divided by the setting, from `times` of the key; 1 without `times`.
/// Nothing if a setting in that expression is not known, or if the result is not positive.
std::optional<double> hf_factor(const HfKey& key,
                                const std::function<Node(const std::string& path)>& value_of);

/// The setting's value for a value of config.json, from HfKey::values; null: the table lacks it.
const Node* hf_in_table(const HfKey& key, const hf::Json& value);
/// The setting's value for that of config.json, where `factor` is hf_factor() of the key; null if
/// that is not known.
Node hf_ours(const HfKey& key, const hf::Json& value, FieldType type, std::optional<double> factor);
/// The number in config.json that gives the setting, where `factor` is hf_factor() of the key. If
/// several numbers give it exactly, the one with the fewest digits.
double hf_theirs(const HfKey& key, double setting, double factor);

/// The number for which the value 0 of a setting stands, from `zeros` of the family; null if
/// `zeros` has no entry for it. `value_of`: the setting of a path, null if it is not known.
Node hf_meaning_of_zero(const HfFamily& family, const std::string& setting,
                        const std::function<Node(const std::string& path)>& value_of);

/// The plugin's settings that neither config.json nor the family determines (`given` are those that
/// they do), except settings that only training uses, with the plugin's defaults. A setting whose
/// key or path is in `ignored` is left out: the recipe decides.
std::vector<HfSetting> hf_implied(const HfFamily& family, const Schema& plugin,
                                  const std::vector<HfSetting>& given,
                                  const std::vector<std::string>& ignored);

}  // namespace mtrain
