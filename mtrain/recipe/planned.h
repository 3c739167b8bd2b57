// Components that are known but not built: their settings are checked and shown like any other's,
// and a recipe that names one is told which part is missing. A plugin of the same name takes the
// place of its plan. Stateless.
#pragma once
#include "mtrain/config/container.h"

namespace mtrain {

/// Adds what is planned and not in the catalog yet. Call it when all plugins are there.
MT_API void add_planned(SchemaCatalog& catalog);

}  // namespace mtrain
