// Brings a recipe's text up to date: former names of settings become the present ones, and nothing
// else of the text changes, not a blank. Stateless.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/container.h"

namespace mtrain {

struct Renaming {
  std::string before, now;  // full paths
  Location where;
};

/// A name of another trainer, which no change of names mends.
struct ForeignKey {
  std::string path, help;
  Location where;
};

struct Migration {
  std::string text;
  std::vector<Renaming> done;
  std::vector<Renaming> by_hand;  // what a change of names alone cannot mend
  std::vector<ForeignKey> foreign;
};

/// `package`: where the text's settings belong, "model" for an option of the group model; empty for
/// a recipe. A text that is no YAML is an error of the report.
MT_API Migration migrate_recipe(const SourcePtr& source, const std::string& package,
                                const SchemaCatalog& catalog, Report& report);

}  // namespace mtrain
