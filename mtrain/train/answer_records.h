// Checks that an objective over answers can learn from the records of a dataset. Stateless.
#pragma once
#include <memory>

#include "mtrain/data/dataset.h"
#include "mtrain/optim/objective.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// Makes the objective of the recipe, and throws what its constructor throws. Null if it is not an
/// objective over answers: objective.type=tokens.
MT_API std::unique_ptr<Objective> make_objective(const Recipe& recipe, PluginHost& plugins);
/// Throws Error(data) with the location of the first record from which the recipe's objective
/// cannot learn.
MT_API void require_records(const Recipe& recipe, PluginHost& plugins, const Dataset& dataset);

}  // namespace mtrain
