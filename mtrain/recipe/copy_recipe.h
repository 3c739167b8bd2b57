// Copies a recipe's text to another folder: rewrites relative paths of input files (input_paths.h)
// so that they name the same files, and changes nothing else. Stateless; safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/config/container.h"

namespace mtrain {

struct CopiedRecipe {
  std::string text;
  std::vector<Location> by_hand;  // relative paths that could not be rewritten: a text over several
                                  // lines, one that starts with ${…}
};

/// `package`: where the text's settings belong, "dataset" for an option of that group; empty for a
/// recipe. `from`: the folders at which a relative path may start, of which the first that holds
/// its file counts; `to`: where it starts in the copy. A text that is no YAML is an error of the
/// report.
MT_API CopiedRecipe copy_recipe(const SourcePtr& source, const std::string& package,
                                const std::vector<fs::path>& from, const fs::path& to,
                                const SchemaCatalog& catalog, Report& report);

}  // namespace mtrain
