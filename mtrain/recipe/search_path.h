// The search path for recipes and their groups: an ordered list of folders; the first match wins.
// Stateless; reads only the environment and which folders exist.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/base/file.h"

namespace mtrain {

struct SearchFolder {
  enum class Kind : uint8_t { recipe, project, plugins, user, system, built_in };
  Kind kind;
  fs::path path;  // may be absent
};

/// `own` (the folder of a recipe; empty: none), ./recipes of the working directory, `recipes` in
/// each plugin folder, $XDG_CONFIG_HOME/mtrain (~/.config/mtrain if the variable is not set),
/// /etc/mtrain, and the installed recipes. Without duplicates.
MT_API std::vector<SearchFolder> search_folders(const std::vector<fs::path>& plugin_folders,
                                                const fs::path& own = {});
/// "project", "shipped with plugins", …
MT_API const char* name(SearchFolder::Kind kind);
/// The folder of mtrain's own data files: "recipes", "schemas".
MT_API fs::path shared_folder(const std::string& what);

/// True if a file is in a folder of recipes that are shared by projects: any folder of the search
/// path except `./recipes`, or mtrain's own recipes.
MT_API bool is_installed(const fs::path& file, const std::vector<SearchFolder>& folders);

/// The result of a search for a recipe.
struct FoundRecipe {
  fs::path file;
  std::optional<SearchFolder::Kind> by_name;  // absent if it was given as a path
};
/// A file, or the name of one in the folders ("llama3_8b", "optimizer/adamw"); where there is
/// neither, a folder of that path. Nothing when there is none of these.
MT_API std::optional<FoundRecipe> find_recipe(const std::string& path_or_name,
                                              const std::vector<SearchFolder>& folders);

}  // namespace mtrain
