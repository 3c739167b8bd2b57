// The trials of a sweep: one recipe each, told apart by the settings that vary. Stateless.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "mtrain/train/recipe.h"

namespace mtrain {

struct SweepTrial {
  RecipeRequest request;  // its recipe; `trial` is its number, from 0
  /// The settings that the sweep varies, in its order, with this trial's values.
  std::vector<std::pair<std::string, std::string>> settings;
  std::string label;  // "optimizer.lr=1e-3 model.layers=2"
};

/// What the recipe's `sweep:` map and the overrides say, the last dimension varying fastest; one trial when
/// nothing varies. Throws Error(config) when the grammar is broken or there are too many.
MT_API std::vector<SweepTrial> sweep_trials(const RecipeRequest& request, const PluginHost& plugins);

}  // namespace mtrain
