// Which of several values of a setting counts: the one that was merged last, under whichever of its
// names. Used inside this folder only. Stateless functions; safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/catalog.h"
#include "mtrain/config/compose.h"
#include "mtrain/config/override.h"

namespace mtrain {

/// The order in which a value was merged: files in their order, then the patches and the overrides,
/// each in their order.
int merge_order(const Composition& composition, const std::vector<OverrideText>& overrides,
                const Location& where);
/// All names of the setting at a path, as validate() accepts them. The names that the tree has come
/// first: of several values, validate() uses the one that was merged last, so its name is in front.
/// Then the setting's own name.
std::vector<std::string> names_of(const std::string& path, const Composition& composition,
                                  const std::vector<OverrideText>& overrides,
                                  const SchemaCatalog& catalog);
/// The path at which the tree has the setting at `path`, under whichever of its names.
std::string path_in(const Composition& composition, const std::vector<OverrideText>& overrides,
                    const SchemaCatalog& catalog, const std::string& path);
/// The path of the alternative (Field::alternative) that replaces the value at `path` since it was
/// merged later; "" where none does.
std::string alternative_in(const Composition& composition,
                           const std::vector<OverrideText>& overrides, const SchemaCatalog& catalog,
                           const std::string& path);

}  // namespace mtrain
