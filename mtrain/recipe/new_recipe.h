// Recipes for users to start from: copies of those in the search path, and new ones made of what
// the schema requires. Pure functions over texts.
#pragma once
#include <string>

#include "mtrain/config/container.h"

namespace mtrain {

/// The text with a first line that tells editors where the JSON Schema of recipes is; an older such
/// line goes.
MT_API std::string with_modeline(const std::string& text, const std::string& schema);
/// A recipe of a model and a dataset plugin with every required setting, each with its meaning in a
/// comment. `dataset`: empty for one whose samples the model can learn from, gpt where that is one.
/// Throws Error(config) for an unknown plugin.
MT_API std::string new_recipe(const SchemaCatalog& catalog, const std::string& model,
                              const std::string& dataset);

}  // namespace mtrain
