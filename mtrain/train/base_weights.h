// The frozen weights to which a run adds adapters. Checkpoints have the adapters only, and the
// identity of these weights. Stateless functions; thread-safe.
#pragma once
#include <map>
#include <string>

#include "mtrain/checkpoint/store.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// A digest of the weights in a Hugging Face folder or in a run's newest valid checkpoint. Of a
/// folder: names, types, shapes and samples of each tensor's bytes, since reading all of them would
/// take as long as the import. Error(checkpoint) when there are none.
MT_API std::string base_identity(const fs::path& from);

/// The identity of the frozen weights: that of the weights in model.init_from ("random" without
/// it), and the seed of values that are random. Empty for a recipe that trains all weights.
MT_API std::string base_identity(const Recipe& recipe);

/// Digests of the weights that a run reads at its start, by setting: model.init_from,
/// peft.init_from and objective.teacher.
MT_API std::map<std::string, std::string> weights_at_start(const Recipe& recipe);

/// Throws Error(checkpoint) if the weights of model.init_from are not those to which the adapters
/// of `checkpoint` belong. `trained_on`: their identity.
MT_API void require_base(const Recipe& recipe, const std::string& trained_on,
                         const std::string& checkpoint);

}  // namespace mtrain
