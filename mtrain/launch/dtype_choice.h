// The choice of mixed_precision.dtype=auto: the faster one of bf16 and fp32 on the backend of a
// recipe, or the type of the run that is continued. It is made once, before anything reads the
// type, and stands in the recipe from then on. Stateless.
#pragma once
#include <string>

#include "mtrain/comm/communicator.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/record/saved_config.h"

namespace mtrain {

struct DtypeChoice {
  std::string dtype;   // "bf16"
  std::string reason;  // as half a sentence: "this CPU has no bf16 arithmetic"
  std::string note;    // where the continued run's type is not the one for this machine: one line
                       // that says so
};

/// What auto takes for this recipe here and now. Asks the backend, which for dist.backend other
/// than cpu runs its plugin, and looks into the checkpoint folder for a run to continue.
MT_API DtypeChoice choose_dtype(const Recipe& recipe, PluginHost& plugins);

/// Where the recipe says auto: puts the chosen type into its settings and its configuration, and
/// logs the note.
MT_API void settle_dtype(Recipe& recipe, PluginHost& plugins);
/// Collective: the same with the first rank's choice on all ranks; the others ask nobody.
MT_API void settle_dtype(Recipe& recipe, PluginHost& plugins, Communicator& ranks);

/// For a recipe that was read from what a run left behind: logs one line where auto took its type
/// when that run began, and would take another one here.
MT_API void note_kept_dtype(const Recipe& recipe, const SavedConfig& saved, PluginHost& plugins);

}  // namespace mtrain
