// The settings of a recipe's model that the weights of model.init_from determine: those of a
// Hugging Face folder's config.json, or of a saved run. Stateless; safe from any thread.
#pragma once
#include <functional>

#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// Whether a file or an override gives the setting its value; otherwise it is a default.
bool is_set(const Node& setting);

/// Gives the settings that the recipe does not set the values of the model in model.init_from:
/// calls `load`, which reads the configuration again with these values as overrides. A different
/// value in the recipe is an error, except for settings that only training uses. A feature that the
/// model plugin does not support is an error, or a warning if only training uses it. Sets
/// Recipe::folder_vocab.
void apply_weight_settings(ConfigRequest request, const SchemaCatalog& catalog,
                           const PluginHost& plugins, Recipe& recipe,
                           const std::function<void(const ConfigRequest&)>& load);

}  // namespace mtrain
