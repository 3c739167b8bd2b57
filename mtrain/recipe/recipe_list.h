// The recipes and options that the search path holds. Reads their text; checks nothing. Stateless.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/tree.h"
#include "mtrain/recipe/search_path.h"

namespace mtrain {

struct ListedRecipe {
  std::string name;   // "llama3_8b"; of an option, with its group: "optimizer/adamw"
  std::string group;  // empty for a whole recipe
  fs::path file;
  SearchFolder::Kind kind;
  std::string description;  // the first sentence of its first comment
  bool shadowed = false;    // an earlier folder has one of this name
};

/// All files of the search path: whole recipes first, each part by name, those of earlier folders
/// first.
MT_API std::vector<ListedRecipe> list_recipes(const std::vector<SearchFolder>& folders);
/// The first sentence of the first comment line of a recipe's text that is meant for people.
MT_API std::string recipe_description(std::string_view text);

/// A file that says a setting, and what it says.
struct RecipeUse {
  std::string name;
  Location where;
  std::string value;
};
/// Which of the files say a value for the setting at `path`.
MT_API std::vector<RecipeUse> recipes_using(const std::string& path,
                                            const std::vector<SearchFolder>& folders);

}  // namespace mtrain
