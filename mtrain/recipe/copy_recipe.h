// Copies a recipe's text to another folder: rewrites relative paths of input files (input_paths.h)
// so that they name the same files, and changes nothing else. Stateless; safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/config/container.h"

namespace mtrain {

/// The absolute path without links, as far as the path exists.
fs::path real_path(const fs::path& path);

struct CopiedRecipe {
  std::string text;
  std::vector<Location> by_hand;  // relative paths that could not be rewritten, such as a text over
                                  // several lines or one that starts with ${…}
};

/// `package`: the section of the text's settings, "dataset" for an option of that group; empty for
/// a recipe. `from`: the folders in which a relative path is searched; the first one that has the
/// file is used. `to`: the folder to which paths of the copy are relative. A text that is not YAML
/// is reported as an error.
MT_API CopiedRecipe copy_recipe(const SourcePtr& source, const std::string& package,
                                const std::vector<fs::path>& from, const fs::path& to,
                                const SchemaCatalog& catalog, Report& report);

}  // namespace mtrain
