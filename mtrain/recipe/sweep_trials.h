// The trials of a sweep: one recipe per trial; the varied settings distinguish them. Stateless
// functions; safe from any thread.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "mtrain/recipe/recipe.h"

namespace mtrain {

struct SweepTrial {
  RecipeRequest request;  // its recipe; `trial` is its number, from 0
  /// The settings that the sweep varies, in its order, with this trial's values.
  std::vector<std::pair<std::string, std::string>> settings;
  std::string label;  // "optimizer.lr=1e-3 model.layers=2"
};

/// Where the trials of a sweep have their folders.
struct SweepFolders {
  fs::path common;                  // holds all of them
  std::vector<fs::path> of_trials;  // empty for a faulty trial
};

/// A trial's folder is run.dir/N, or the run.dir that it names itself where run.dir depends on what
/// varies. Throws Error(config) where such a folder is another trial's, or in it.
MT_API SweepFolders sweep_folders(const std::vector<SweepTrial>& trials,
                                  const std::vector<bool>& faulty, const PluginHost& plugins);

/// What the recipe's `sweep:` map and the overrides say, the last dimension varying fastest; one
/// trial when nothing varies. Throws Error(config) when the grammar is broken or there are too
/// many.
MT_API std::vector<SweepTrial> sweep_trials(const RecipeRequest& request,
                                            const PluginHost& plugins);

}  // namespace mtrain
