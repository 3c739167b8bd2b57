// Resolves names of components in a section's `type` and in other settings. Used inside this folder
// only. Stateless functions; safe from any thread.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/container.h"

namespace mtrain {

/// The component name in a section's `type`, else the default of `type`; "" when there is neither.
std::string wanted_component(const Schema& section, const Node* given);
/// The schemas of a section and of the component that the recipe names in it; empty when there is
/// no such section.
std::vector<const Schema*> owners_in(const Node& tree, const std::string& section,
                                     const SchemaCatalog& catalog);
/// True when `section=name` sets the section's `type`: a component, or a choice of a section
/// without plugins (scheduler=linear).
bool names_type(const std::string& section, const std::string& name, const SchemaCatalog& catalog);
/// The names of the components of a kind that this build implements.
std::vector<std::string> built_components(const SchemaCatalog& catalog, const std::string& kind);
/// The component that a section's `type` names. When there is none, reports it and returns null.
const Schema* component_of(const Schema& section, const Node& given, const SchemaCatalog& catalog,
                           Report& report);
/// Reports settings other than `type` that name a plugin which does not exist.
void check_plugin_names(const Schema& schema, const Node& values, const std::string& path,
                        const SchemaCatalog& catalog, Report& report);
/// For a resolved recipe (its text is `resolved`) whose `type` an override has changed: removes
/// the settings of the old component that the recipe wrote, if the new component does not have
/// them, if their values are the old component's defaults, or if the new component does not allow
/// these values. If an override sets a single file (`path`), removes the recipe's list of files
/// with its weights and phases; if an override sets a list, removes the recipe's single file.
void drop_replaced_settings(Node& tree, const SourcePtr& resolved, const SchemaCatalog& catalog);
/// Before a map replaces the component of a section by the component `next`: removes the settings
/// of the present component. The settings that all components of the section have stay.
void drop_component(Node& tree, const std::string& section, const std::string& next,
                    const SchemaCatalog& catalog);
/// Help for a setting that other components of its section have but the chosen one does not; "" for
/// any other path. `written`: the name that the user wrote, to be removed.
std::string setting_of_others(std::string_view path, std::string_view written, const Schema& chosen,
                              const SchemaCatalog& catalog);
/// Help for `model: {llama: {…}}`, which uses a component's name as a key; "" for any other path.
std::string component_as_key(std::string_view path, const SchemaCatalog& catalog);

}  // namespace mtrain
