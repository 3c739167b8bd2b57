// Converts a recipe to the SavedConfig of a run, for its record and its checkpoints. Stateless.
#pragma once
#include <string>

#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/record/saved_config.h"

namespace mtrain {

/// `data` and `tokenizer`: the identities of the dataset and tokenizer; `arithmetic`: see
/// SavedIdentity, as for `invocation`.
MT_API SavedConfig make_saved_config(const Recipe& recipe, const PluginHost& plugins,
                                     const std::string& data, const std::string& tokenizer,
                                     const std::string& arithmetic,
                                     const std::string& invocation = "",
                                     const std::string& chat_template = "");

}  // namespace mtrain
