// Recipes for users to start from: copies of those in the search path, and new ones with the
// settings that the schema requires. Pure functions over texts.
#pragma once
#include <string>

#include "mtrain/config/container.h"

namespace mtrain {

/// The text with a first line that gives editors the path of the JSON Schema of recipes; replaces
/// an earlier such line.
MT_API std::string with_modeline(const std::string& text, const std::string& schema);
/// A recipe for a model and a dataset plugin with every required setting, each with its meaning in
/// a comment. `dataset`: empty for one with the model's training objective, preferably gpt. Throws
/// Error(config) for a plugin that is unknown or not implemented, and for a dataset with samples
/// for another objective than the model's; the help lists those that fit.
MT_API std::string new_recipe(const SchemaCatalog& catalog, const std::string& model,
                              const std::string& dataset);

}  // namespace mtrain
