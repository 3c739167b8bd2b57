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

/// ./recipes of the working directory, `recipes` in each plugin folder, $XDG_CONFIG_HOME/mtrain,
/// /etc/mtrain, and the recipes that came with the program. Without repetitions.
MT_API std::vector<SearchFolder> search_folders(const std::vector<fs::path>& plugin_folders,
                                                const fs::path& own = {});
/// "project", "shipped with plugins", …
MT_API const char* name(SearchFolder::Kind kind);
/// Where the program keeps what it came with: "recipes", "schemas".
MT_API fs::path shared_folder(const std::string& what);

/// Whether a file lies in a folder that holds recipes for everybody's projects: all of the search
/// path but `./recipes`, and what came with the program in any case.
MT_API bool is_installed(const fs::path& file, const std::vector<SearchFolder>& folders);

/// A recipe as a user says it, found.
struct FoundRecipe {
  fs::path file;
  std::optional<SearchFolder::Kind> by_name;  // absent when it was said as a path
};
/// A file, or the name of one in the folders ("llama3_8b", "optimizer/adamw"). Nothing when there
/// is neither.
MT_API std::optional<FoundRecipe> find_recipe(const std::string& said,
                                              const std::vector<SearchFolder>& folders);

}  // namespace mtrain
