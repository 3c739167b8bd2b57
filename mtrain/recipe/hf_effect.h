// Whether and how a setting of a model acts, for export: a setting without an effect needs no key.
// Stateless functions; safe from any thread.
#pragma once
#include <string>

#include "mtrain/recipe/hf_tensors.h"

namespace mtrain {

/// False if the rules on settings without an effect say that this one has none with the values of
/// the model's other settings.
bool hf_has_effect(const HfModel& model, const std::string& path);

/// The value to which a setting resolves, such as "always" or "never" for router.normalize=auto, or
/// the number for which 0 stands (derived_zero.h). Null: it is its own value.
Node hf_meaning(const HfModel& model, const std::string& path);

/// True if the other value would mean the same as the setting's.
bool hf_means(const HfModel& model, const std::string& path, const Node& other);
/// True if the setting's default would mean the same: router.normalize=always where auto stands for
/// it, moe.ffn_hidden_size=256 in a model with ffn_hidden_size=256.
bool hf_means_default(const HfModel& model, const FieldSpec& spec);

}  // namespace mtrain
