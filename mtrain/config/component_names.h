// Names of components, as a section's `type` and other settings say them. Used by container.cc
// only. Stateless.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/container.h"

namespace mtrain {

/// The name that a section's `type` gives, as far as it is known; "" when there is none.
std::string wanted_component(const Schema& section, const Node* given);
/// The names of a kind's components that can be used.
std::vector<std::string> built_components(const SchemaCatalog& catalog, const std::string& kind);
/// The component that a section's `type` names; null when there is none, which is then reported.
const Schema* component_of(const Schema& section, const Node& given, const SchemaCatalog& catalog,
                           Report& report);
/// Reports settings elsewhere than in `type` that name a plugin which does not exist.
void check_plugin_names(const Schema& schema, const Node& values, const std::string& path,
                        const SchemaCatalog& catalog, Report& report);
/// Where overrides choose another component than a resolved recipe names: removes from the tree
/// what that recipe, the text `resolved`, says of the old component and the new one does not have.
void drop_replaced_settings(Node& tree, const SourcePtr& resolved, const SchemaCatalog& catalog);
/// What to do about a setting that other components of its section have and the chosen one lacks;
/// "" for any other path.
std::string setting_of_others(std::string_view path, const Schema& chosen,
                              const SchemaCatalog& catalog);
/// What to write for `model: {llama: {…}}`, where a component's name is used as a key; "" for any
/// other path.
std::string component_as_key(std::string_view path, const SchemaCatalog& catalog);

}  // namespace mtrain
