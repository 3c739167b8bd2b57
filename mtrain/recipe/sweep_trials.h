// The trials of a sweep: one recipe per trial; they differ in the varied settings. Stateless
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
  std::vector<std::string> paths;  // of these settings, whatever names the sweep uses for them
  std::string label;               // "optimizer.lr=1e-3 model.layers=2"
};

/// The folders of the trials of a sweep.
struct SweepFolders {
  fs::path common;                  // contains all of them
  std::vector<fs::path> of_trials;  // empty for a faulty trial
};

/// A trial's folder is run.dir if it depends on the varied settings, otherwise run.dir/N. Throws
/// Error(config) if a trial's folder is that of another trial or inside it.
MT_API SweepFolders sweep_folders(const std::vector<SweepTrial>& trials,
                                  const std::vector<bool>& faulty, const PluginHost& plugins);

/// The trials of the recipe's `sweep:` map and the overrides; the last dimension varies fastest.
/// One trial if nothing varies. Throws Error(config) when the grammar is broken or there are too
/// many.
MT_API std::vector<SweepTrial> sweep_trials(const RecipeRequest& request,
                                            const PluginHost& plugins);

}  // namespace mtrain
