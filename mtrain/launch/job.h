// Job: the ranks that train a recipe together, as dist.nproc and dist.comm say — this thread alone,
// threads of this process, or the processes that a launcher started. Stateless.
#pragma once
#include <functional>
#include <mutex>

#include "mtrain/comm/communicator.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// Calls `rank` on every rank that lives in this process, each on its own thread with its
/// communicator of the whole job, and returns when all have ended. The error of the rank that
/// failed first is thrown; the others are told and end. Where ranks are watched
/// (dist.silence_seconds) and one of this process's does not come back after a failure, the process
/// ends with the failure's status. Error(config) when a launcher started another number of ranks
/// than dist.nproc, and when launched ranks differ in recipe, program or plugins. Settles
/// mixed_precision.dtype=auto in `recipe` before any rank is called: the first rank decides, and
/// all follow. `before_exit`: called where the process may end without unwinding, by any thread.
MT_API void run_job(Recipe& recipe, PluginHost& plugins,
                    const std::function<void(Communicator&)>& rank,
                    const std::function<void()>& before_exit = {});

/// Builds what a rank needs, the first rank before the others, so that it finds the machine as it
/// was and what it refuses nobody has begun; then the others of this process one after the other,
/// since plugins are loaded by one at a time.
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
