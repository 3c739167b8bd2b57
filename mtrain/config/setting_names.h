// Help for keys that are not settings: names that are similar, that other programs use, or that
// belong to components the recipe does not choose. Stateless functions; safe from any thread.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "mtrain/config/catalog.h"
#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// The components that a recipe chooses, each with its section.
using ChosenComponents = std::vector<std::pair<std::string, const Schema*>>;

/// The names that a recipe with these components may use. The index refers to the catalog.
KeyIndex all_names(const SchemaCatalog& catalog, const ChosenComponents& chosen);

/// Reports a key at the root that is not a section. `suggests`: whether to search for a suggestion,
/// which costs far more than the report itself.
void unknown_section(const Node::Entry& entry, const Node& tree, const KeyIndex& known,
                     bool suggests, const SchemaCatalog& catalog, Report& report);

}  // namespace mtrain
