// What a recipe can ask about its surroundings, besides the resolvers of mtrain/config:
// ${run:name},
// ${recipe_dir:}, ${cwd:}, ${world_size:} (of Cluster; 1 when it does not say), ${gpu:memory_gb},
// ${file_text:PATH}. Stateless.
#pragma once
#include <filesystem>
#include <string>

#include "mtrain/config/container.h"
#include "mtrain/recipe/cluster.h"

namespace mtrain {

struct Surroundings {
  std::string name;                 // of the recipe
  std::filesystem::path directory;  // where the recipe's paths start
  Cluster cluster;
  int64_t trial = 0;  // of a sweep
};

/// Adds the resolvers. One whose question has no answer (a GPU nobody named, a file that is not
/// there) throws Error, which the report shows at the setting's place.
void add_resolvers(ConfigRequest& request, const Surroundings& around);

}  // namespace mtrain
