// The device memory that a run needs, from a dry run: a step with kernels that do nothing
// (planning.h). It is exact for any model, since the model's own code runs. It needs almost no
// memory; it takes the time to build tokenizer, model and optimizer. Counts memory of tensors only,
// without workspace that kernels allocate themselves. Stateless functions.
#pragma once
#include <string>
#include <vector>

#include "mtrain/pipeline/stage_steps.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/tensor/memory_use.h"

namespace mtrain {

struct MemoryPlan {
  MemoryBreakdown at_peak;  // the memory in use at the peak
  size_t peak = 0;          // its sum
  size_t reserved =
      0;            // including blocks that the allocator caches: the memory taken from the system
  size_t free = 0;  // the free memory of the device now
  int64_t ranks_here = 1;     // ranks that share the device's memory; set by require_memory
  size_t more_elsewhere = 0;  // additional memory that ranks other than rank 0 need
  int64_t parameters = 0;     // of the whole model
  int64_t adapters = 0;       // of these, those of adapters
  int64_t products = 0;       // those of trained matrices that each token is multiplied by
  int64_t trained = 0;        // those that are not frozen
  int64_t saved = 0;          // floats of a checkpoint: trained parameters and their state
  std::vector<std::string> param_groups;  // ParamRates::lines()
  std::vector<MemoryBreakdown> stages;    // at their peaks, by pipeline rank; the first is at_peak
  std::vector<InnerStepRules> steps;      // of the built model, by pipeline rank
};

/// Throws Error(config) for groups of parameters (optimizer.groups, embedding_lr) that this model
/// does not have. Returns ParamRates::lines().
MT_API std::vector<std::string> check_param_groups(const Recipe& recipe, PluginHost& plugins);
/// Plans a training step for rank 0 and for one rank of every other pipeline rank, and an
/// evaluation if its micro-batches are larger. Builds tokenizer, model and optimizer, so it throws
/// their errors.
MT_API MemoryPlan plan_memory(const Recipe& recipe, PluginHost& plugins);
/// The same, and throws Error(config) if less memory is free. The message states the need by use
/// and the settings that lower it.
MT_API MemoryPlan require_memory(const Recipe& recipe, PluginHost& plugins);

}  // namespace mtrain
