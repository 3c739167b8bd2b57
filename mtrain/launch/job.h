// Runs a job: the ranks that train a recipe together. dist.nproc and dist.comm determine whether
// the ranks are this thread alone, threads of this process, or processes of a launcher. Stateless
// functions.
#pragma once
#include <functional>
#include <mutex>

#include "mtrain/comm/communicator.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// Calls `rank` for every rank of this process, each on its own thread with a communicator of the
/// whole job, and returns when all have ended. Throws the error of the rank that failed first; the
/// other ranks are notified and end. If ranks are watched (dist.silence_seconds) and one of this
/// process does not return after a failure, the process exits with the status of the failure.
/// Error(config) when a launcher started another number of ranks than dist.nproc, or when launched
/// ranks differ in recipe, program or plugins. Resolves mixed_precision.dtype=auto and
/// train.epochs in `recipe` before it calls any rank; rank 0 decides for all. `before_exit`: called
/// on any thread before the process exits without unwinding.
MT_API void run_job(Recipe& recipe, PluginHost& plugins,
                    const std::function<void(Communicator&)>& rank,
                    const std::function<void()>& before_exit = {});

/// Collective: calls `build` on rank 0 before all other ranks, so that rank 0 sees the unused
/// machine and its errors occur before another rank starts. The other ranks of this process then
/// build one after the other, since only one thread at a time may load plugins.
template <class Build>
void build_in_turn(Communicator& ranks, std::mutex& turn, Build&& build) {
  if (ranks.rank() != 0) ranks.barrier();
  {
    std::lock_guard lock(turn);
    build();
  }
  if (ranks.rank() == 0) ranks.barrier();
}

}  // namespace mtrain
