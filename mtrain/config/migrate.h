// Updates a recipe's text: replaces former names of settings by the current ones. The rest of the
// text stays the same byte for byte. Stateless functions; safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/container.h"

namespace mtrain {

struct Renaming {
  std::string before, now;  // full paths
  Location where;
};

/// A name from another trainer, which a change of the name alone does not fix.
struct ForeignKey {
  std::string path, help;
  Location where;
};

struct Migration {
  std::string text;
  std::vector<Renaming> done;
  std::vector<Renaming> by_hand;  // renamings that need more than a change of the name
  std::vector<ForeignKey> foreign;
};

/// `package`: the section of the text's settings, "model" for an option of the group model; empty
/// for a recipe. Reports an error when the text is not YAML.
MT_API Migration migrate_recipe(const SourcePtr& source, const std::string& package,
                                const SchemaCatalog& catalog, Report& report);

}  // namespace mtrain
