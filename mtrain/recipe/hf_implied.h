// Settings of a Hugging Face folder's model that its config.json does not give, because all models
// of the family have the same value, and what a setting of 0 stands for. Used by hf_config.cc and
// hf_write_config.cc. Stateless functions; safe from any thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "mtrain/recipe/hf_config.h"

namespace mtrain {

/// The number that 0 stands for as the value of a setting, by `zeros` of the family; null if that
/// does not say. `value_of`: the setting of a path, null if it is not known.
Node hf_meaning_of_zero(const HfFamily& family, const std::string& setting,
                        const std::function<Node(const std::string& path)>& value_of);

/// The plugin's settings that neither config.json nor the family determines (`given` are those that
/// they do), except settings that only training uses, with the plugin's defaults. A setting whose
/// key or path is in `ignored` is left out: the recipe decides.
std::vector<HfSetting> hf_implied(const HfFamily& family, const Schema& plugin,
                                  const std::vector<HfSetting>& given,
                                  const std::vector<std::string>& ignored);

}  // namespace mtrain
