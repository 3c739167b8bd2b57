// SavedRun: a saved model with the recipe that trained it, for evaluation, generation and export.
// Stateless.
#pragma once
#include <string>
#include <vector>

#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/record/saved_config.h"

namespace mtrain {

/// A recipe and its checkpoint folder, found from a path that the user gives.
struct SavedRun {
  Recipe recipe;
  fs::path checkpoints;
  int64_t step = 0;
  SavedConfig config;  // the configuration in the checkpoint; empty in checkpoints of old versions
  std::string tokenizer = {};  // identity of the tokenizer of the training
  std::string base = {};       // identity of the frozen weights; empty: none were frozen
  std::string reference = {};  // where an objective's reference comes from; empty: there is none
};
/// find_saved_step() and the recipe in that checkpoint, with `overrides` applied. Throws
/// Error(checkpoint) for overrides of model settings that its weights do not allow
/// (check_used_model).
MT_API SavedRun open_saved_run(const fs::path& path, std::vector<OverrideText> overrides,
                               const PluginHost& plugins);

}  // namespace mtrain
