// The family of a folder by model_type and architectures in its config.json, and messages about
// one that is not read. Stateless functions.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/recipe/hf_config.h"
#include "mtrain/recipe/hf_json.h"

namespace mtrain::hf {

/// The name of the folder's model, for messages.
std::string kind_of(const Json& config);

/// The fault if model_type and architectures name different families; otherwise "".
std::string family_conflict(const Json& config, const HfFamilies& families);

/// The architectures of families whose parts are implemented. `plugin`: empty: of all.
std::vector<std::string> readable(const HfFamilies& families, std::string_view plugin,
                                  const PluginSchema& schema_of);

inline constexpr const char* kCorrectOne =
    "in config.json, correct the one that does not describe the weights";

}  // namespace mtrain::hf
