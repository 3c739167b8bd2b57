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
    incomplete,  // right, but something must still be said on the command line, or a file that it
                 // names is not there
    not_built,   // right, but needs parts that this build does not have
    faulty,
  };
  Kind kind = Kind::ready;
  std::vector<std::string> needs;  // what must be said, or what is not built
  size_t errors = 0;               // other ones
};

/// `inputs`: the files that a sound recipe names.
MT_API RecipeState judge_recipe(const Report& report, const std::vector<InputPath>& inputs = {});
/// "ready", "needs dataset.path", "needs the file data/chats.jsonl (dataset.path)", "not built: …",
/// "3 errors".
MT_API std::string describe(const RecipeState& state);
MT_API const char* name(RecipeState::Kind kind);

}  // namespace mtrain
