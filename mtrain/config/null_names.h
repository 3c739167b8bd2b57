// name_nulls(): YAML's null where a plugin or a choice is called "null". Used by container.cc only.
// Stateless.
#pragma once
#include "mtrain/config/container.h"

namespace mtrain {

/// An unquoted null is no text, so it cannot name the plugin or the choice "null": reports each
/// such value with the quotes that it needs, and puts the text in its place, so that the rest is
/// checked as it was meant.
void name_nulls(Node& tree, const SchemaCatalog& catalog, Report& report);

}  // namespace mtrain
