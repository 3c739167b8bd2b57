// Which settings an override sets: two overrides of one setting are recognized although they use
// different names for it. Stateless functions; safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/catalog.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// The settings that `key=value` sets, sorted: `key`, or the entries of a map. Another name of a
/// setting counts as that setting, and one of two alternatives (train.steps, train.epochs) stands
/// for both. `optimizer=adamw` sets "optimizer=", the choice of an option, and, where adamw is a
/// component, optimizer.type. `value`: null for an override without one, ~key. `tree`: the recipe;
/// names are those of its components, then those of any other component.
MT_API std::vector<std::string> settings_of(const std::string& key, const Node* value,
                                            const Node& tree, const SchemaCatalog& catalog);

}  // namespace mtrain
