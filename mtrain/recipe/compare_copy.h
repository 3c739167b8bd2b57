// Finds the files that a copy of a recipe in another folder needs besides its text, and compares
// the settings of the copy with those of the original. Stateless; reads files and writes none.
#pragma once
#include <string>
#include <vector>

#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// A file next to a recipe that its copy would not find: an option, an included file, or a text of
/// ${file_text:…}.
struct CompanionFile {
  fs::path from, to;
  std::string text;  // with relative paths rewritten for `to`
};

/// The companions that a copy at the file `to` lacks. A companion that is already there with the
/// same text is not lacking. `copy_directory`: where relative paths of the copy start.
MT_API std::vector<CompanionFile> lacking_companions(const Recipe& original, const fs::path& to,
                                                     const fs::path& copy_directory,
                                                     const std::vector<SearchFolder>& folders,
                                                     const SchemaCatalog& catalog);

/// One line for each setting that differs between a recipe and its copy, and for each error that
/// only the copy has. Skips settings that contain the recipe's name, and input paths at
/// `by_hand`, which were not rewritten (copy_recipe.h).
MT_API std::vector<std::string> copy_differences(Recipe original, Recipe copy,
                                                 const std::vector<Location>& by_hand,
                                                 const PluginHost& plugins);

}  // namespace mtrain
