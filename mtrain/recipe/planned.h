// Components that are declared but not implemented, or left out of this build: their settings are
// checked and shown like any other's, and the error for a recipe that uses one names the missing
// part. A plugin of the same name replaces the placeholder. Stateless.
#pragma once
#include "mtrain/config/container.h"

namespace mtrain {

/// Adds placeholders for components that are not in the catalog. Call it after all plugins are
/// added.
MT_API void add_planned(SchemaCatalog& catalog);

}  // namespace mtrain
