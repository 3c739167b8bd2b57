// SavedRun: a saved model with the recipe that trained it, for evaluation, generation and export.
// Stateless.
#pragma once
#include <string>
#include <vector>

#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/record/saved_config.h"

namespace mtrain {

/// A recipe and the checkpoint folder it belongs to, found from what a user points at.
struct SavedRun {
  Recipe recipe;
  fs::path checkpoints;
  int64_t step = 0;
  SavedConfig config;  // what the checkpoint says of its run; empty in those of old versions
  std::string tokenizer = {};  // identity of the one that it was trained with
};
/// find_saved_step() and the recipe kept in that checkpoint, with `overrides` on top.
MT_API SavedRun open_saved_run(const fs::path& path, const std::vector<std::string>& overrides,
                               const PluginHost& plugins);

}  // namespace mtrain
