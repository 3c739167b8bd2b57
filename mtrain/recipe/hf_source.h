// The Hugging Face folder from which a recipe's model starts, and whether such a folder can be
// written of it. Stateless functions; safe from any thread.
#pragma once
#include <string>

#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// The folder of model.init_from, if it is a Hugging Face folder that still exists; else empty.
MT_API fs::path hf_source_folder(const Recipe& recipe);
/// The text of its config.json; empty if there is none.
MT_API std::string hf_source_config(const Recipe& recipe);
/// Reports an error if checkpoint.hf is set and no family can express the model.
void check_hf_export(Recipe& recipe, const SchemaCatalog& catalog, const PluginHost& plugins);

}  // namespace mtrain
