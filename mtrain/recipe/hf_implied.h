// Settings of a Hugging Face folder's model that its config.json does not give, because all models
// of the family have the same value. Used by hf_config.cc. Stateless functions; safe from any
// thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/recipe/hf_config.h"

namespace mtrain {

/// The settings of the plugin that are not among `given`, which config.json and the family give,
/// and not training's alone, with the plugin's defaults. A setting whose key or path is in
/// `ignored` is left out: the recipe decides.
std::vector<HfSetting> hf_implied(const HfFamily& family, const Schema& plugin,
                                  const std::vector<HfSetting>& given,
                                  const std::vector<std::string>& ignored);

}  // namespace mtrain
