// What the checkpoint says that a recipe would continue, read before any rank starts. Stateless.
#pragma once
#include <optional>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// `read(store, step)` of the checkpoint that resuming takes. Compares the bytes of checkpoints
/// only where they give different answers. Empty where the recipe begins a run, and where a
/// checkpoint cannot be read: resuming then says what is wrong.
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
