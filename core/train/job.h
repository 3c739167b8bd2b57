// Job: the ranks that train a recipe together, as dist.nproc and dist.comm say — this thread alone, threads of this process,
// or the processes that a launcher started. Stateless.
#pragma once
#include <functional>

#include "mtrain/comm/communicator.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/train/recipe.h"

namespace mtrain {

/// Calls `rank` on every rank that lives in this process, each on its own thread with its communicator of the whole job, and
/// returns when all have ended. The error of the rank that failed first is thrown; the others are told and end.
/// Error(config) when a launcher started another number of ranks than dist.nproc.
MT_API void run_job(const Recipe& recipe, PluginHost& plugins, const std::function<void(Communicator&)>& rank);

}  // namespace mtrain
