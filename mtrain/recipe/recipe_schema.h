// The JSON Schema (draft-07) of whole recipes, for editors: every section, with one variant per
// plugin where a plugin extends it. Pure.
#pragma once
#include <string>

#include "mtrain/config/container.h"

namespace mtrain {

MT_API std::string recipe_json_schema(const SchemaCatalog& catalog);

}  // namespace mtrain
