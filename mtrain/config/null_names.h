// name_nulls() handles YAML's null where a plugin or a choice is named "null". Used by container.cc
// only. Stateless; safe from any thread.
#pragma once
#include "mtrain/config/container.h"

namespace mtrain {

/// An unquoted null is not a string, so it cannot name the plugin or choice "null". Reports each
/// such value and the quotes that it needs, and replaces it by the string, so that later checks see
/// the intended value.
void name_nulls(Node& tree, const SchemaCatalog& catalog, Report& report);

}  // namespace mtrain
