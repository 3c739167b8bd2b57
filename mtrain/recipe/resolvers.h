// Resolvers for the environment of a recipe, in addition to those of mtrain/config: ${run:name},
// ${recipe_dir:}, ${cwd:}, ${world_size:} (of Cluster; 1 if it is not given), ${gpu:memory_gb},
// ${file_text:PATH}. Stateless.
#pragma once
#include <filesystem>
#include <string>

#include "mtrain/config/container.h"
#include "mtrain/recipe/cluster.h"

namespace mtrain {

struct Surroundings {
  std::string name;                 // of the recipe
  std::filesystem::path directory;  // the folder to which the recipe's paths are relative
  Cluster cluster;
  int64_t trial = 0;  // of a sweep
};

/// Adds the resolvers. A resolver without a value (no GPU type given, a missing file) throws Error,
/// which is reported at the location of the setting.
void add_resolvers(ConfigRequest& request, const Surroundings& around);

}  // namespace mtrain
