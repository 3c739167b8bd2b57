// Resolves mixed_precision.dtype=auto: to the type of the run that is resumed, else to bf16 if the
// recipe has FP8 or FP4 matrix products, else to the faster of bf16 and fp32 on the recipe's
// backend. This happens once, before any code reads the type; the result is then stored in the
// recipe. Stateless functions; call on one thread.
#pragma once
#include <string>

#include "mtrain/comm/communicator.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/record/saved_config.h"

namespace mtrain {

struct DtypeChoice {
  std::string dtype;   // "bf16"
  std::string reason;  // a clause, such as "this CPU has no bf16 arithmetic"
  std::string
      note;  // one line, set when the resumed run's type differs from the choice for this machine
};

/// The type that auto resolves to for this recipe on this machine. Queries the backend, which loads
/// its plugin if dist.backend is not cpu, and searches the checkpoint folder for a run to resume.
MT_API DtypeChoice choose_dtype(const Recipe& recipe, PluginHost& plugins);

/// If the recipe has auto: stores the chosen type in its settings and its configuration, and logs
/// the note.
MT_API void resolve_dtype(Recipe& recipe, PluginHost& plugins);
/// Collective: the same with rank 0's choice on all ranks; only rank 0 queries the backend.
MT_API void resolve_dtype(Recipe& recipe, PluginHost& plugins, Communicator& ranks);

/// For the recipe of a saved run: logs one line when auto chose its type at the start of that run
/// and would choose another type on this machine.
MT_API void note_kept_dtype(const Recipe& recipe, const SavedConfig& saved, PluginHost& plugins);

}  // namespace mtrain
