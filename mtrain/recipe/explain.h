// Explains a setting without a recipe: its type, range, default, meaning, names, and the rules and
// recipes that use it. Stateless functions; safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/container.h"
#include "mtrain/recipe/search_path.h"

namespace mtrain {

/// {"path", "asked", "settings": [{"owner", "type", "describe", "doc", "default", …}], "rules":
/// [{"id", "when", "must", "why"}], "recipes": […]}; for a section,
/// {"path", "doc", "sections": […]} with the settings inside it. Throws Error(config) with the
/// nearest names when there is no such setting.
MT_API Node explain_setting(const std::string& path, const SchemaCatalog& catalog,
                            const std::vector<SearchFolder>& folders);
/// The same as text.
MT_API std::string explain_text(const Node& explained);
/// Help for a setting that a recipe does not have: the probable name, the alternative that the
/// recipe sets, or the component that has it. `root`: the settings of the recipe.
MT_API std::string setting_help(const std::string& path, const Node& root,
                                const SchemaCatalog& catalog);

}  // namespace mtrain
