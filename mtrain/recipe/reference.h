// Generates the reference of all settings from the schemas that check recipes: docs/config.md,
// docs/rules.md and the manual page mtrain-recipe(5). Pure.
#pragma once
#include <string>

#include "mtrain/config/container.h"

namespace mtrain {

/// GitHub-flavoured Markdown: a table for each section and component.
MT_API std::string reference_markdown(const SchemaCatalog& catalog);
/// man(7) macros.
MT_API std::string reference_man_page(const SchemaCatalog& catalog);
/// docs/rules.md: the rules between settings.
MT_API std::string rules_markdown();
/// Paths of settings whose documentation is empty.
MT_API std::vector<std::string> undocumented(const SchemaCatalog& catalog);

}  // namespace mtrain
