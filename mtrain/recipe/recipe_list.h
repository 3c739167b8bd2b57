// Lists the recipes and options in the search path. Reads their text without checking it.
// Stateless.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/tree.h"
#include "mtrain/recipe/search_path.h"

namespace mtrain {

struct ListedRecipe {
  std::string name;   // "llama3_8b"; an option has its group: "optimizer/adamw"
  std::string group;  // empty for a whole recipe
  fs::path file;
  SearchFolder::Kind kind;
  std::string description;  // the first sentence of its first comment
  bool shadowed = false;    // an earlier folder has a file of the same name
};

/// All files of the search path: recipes first, then options, each sorted by name and then by the
/// order of folders.
MT_API std::vector<ListedRecipe> list_recipes(const std::vector<SearchFolder>& folders);
/// The first sentence of the first comment line of a recipe that is not a mode line.
MT_API std::string recipe_description(std::string_view text);

/// A file that sets a setting, and the value.
struct RecipeUse {
  std::string name;
  Location where;
  std::string value;
};
/// The files that set the setting at `path`.
MT_API std::vector<RecipeUse> recipes_using(const std::string& path,
                                            const std::vector<SearchFolder>& folders);

}  // namespace mtrain
