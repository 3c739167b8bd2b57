// Reads values from the checkpoint that a recipe would resume, before any rank starts. Stateless;
// safe from any thread.
#pragma once
#include <optional>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// Returns `read(store, step)` for the checkpoint that a resume would use. Verifies checkpoints
/// only when they give different values. Empty when the recipe starts a new run or a checkpoint
/// cannot be read; the resume reports that fault later.
template <class Read>
auto read_continued(const Recipe& recipe, Read&& read) {
  using Value = decltype(read(std::declval<const CheckpointStore&>(), int64_t{}));
  if (recipe.settings.checkpoint.resume == "never") return std::optional<Value>();
  try {
    CheckpointStore store(recipe.checkpoint_directory());
    std::set<Value> found;
    for (const CheckpointInfo& info : store.list())
      if (info.problem.empty()) found.insert(read(store, info.step));
    if (found.size() == 1) return std::optional<Value>(*found.begin());
    if (auto step = found.empty() ? std::nullopt : store.latest_valid().step)
      return std::optional<Value>(read(store, *step));
  } catch (const Error&) {
  }
  return std::optional<Value>();
}

}  // namespace mtrain
