// Whether a recipe can run here, in one line, for `recipes ls` and `recipes verify`. Stateless
// functions; safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/report.h"
#include "mtrain/recipe/input_paths.h"

namespace mtrain {

struct RecipeState {
  enum class Kind : uint8_t {
    ready,
    incomplete,  // valid, but requires a setting on the command line, or a file that it names
                 // is missing
    not_built,   // valid, but needs parts that are not implemented or not in this build
    faulty,
  };
  Kind kind = Kind::ready;
  std::vector<std::string> needs;  // the settings to give, or the parts that are missing
  size_t errors = 0;               // the number of other errors
};

/// `inputs`: the files that a valid recipe names.
MT_API RecipeState judge_recipe(const Report& report, const std::vector<InputPath>& inputs = {});
/// "ready", "needs dataset.path", "needs the file data/chats.jsonl (dataset.path)",
/// "not supported: …", "3 errors".
MT_API std::string describe(const RecipeState& state);
MT_API const char* name(RecipeState::Kind kind);

}  // namespace mtrain
