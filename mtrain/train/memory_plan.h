// What a recipe's run will need in device memory, found by stepping through it with kernels that do
// nothing (planning.h): exact for any model, since the model itself says what it keeps. Takes next
// to no memory, and the time of building tokenizer, model and optimizer once more. Memory of
// tensors: what kernels need for themselves is not in it.
#pragma once
#include <vector>

#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/tensor/memory_use.h"

namespace mtrain {

struct MemoryPlan {
  MemoryBreakdown at_peak;  // what is in use when most is
  size_t peak = 0;          // its sum
  size_t reserved = 0;  // with what the allocator holds for reuse: what is taken from the system
  size_t free = 0;      // what the device can give now
  size_t more_elsewhere = 0;            // what ranks but the first need besides
  int64_t parameters = 0;               // of the whole model
  std::vector<MemoryBreakdown> stages;  // at their peaks, by pipeline rank; the first is at_peak
};

/// Plans a training step of this recipe, for the first rank and for one of each further place in
/// the pipeline. Builds tokenizer, model and optimizer, so it throws what building them throws.
MT_API MemoryPlan plan_memory(const Recipe& recipe, PluginHost& plugins);
/// The same, and throws Error(config) — need, what for, and the keys that lower it — when less is
/// free.
MT_API MemoryPlan require_memory(const Recipe& recipe, PluginHost& plugins);

}  // namespace mtrain
