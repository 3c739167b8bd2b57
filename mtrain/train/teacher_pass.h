// The pass before training that computes the teacher's most likely ids (objective.top_k) of all
// samples that a run will read, as far as objective.store lacks them. The teacher is alone in
// memory, with all ranks of the job: sharded by dist.tp, dist.sp and dist.cp as the student, and
// all other ranks are data-parallel, those of pipeline stages included. It is built only if a
// sample is missing.
#pragma once
#include <functional>
#include <mutex>

#include "mtrain/comm/communicator.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

struct TeacherPassOptions {
  std::function<bool()> stop;         // called between micro-batches; true on a rank: all stop
  std::function<void()> begins = {};  // called on rank 0 before anything is written
  int64_t steps = -1;  // of the run that will read the samples, without validation; -1: all
};

/// Collective over the job; does nothing for recipes without a TeacherStore. `building`: held while
/// plugins are loaded. Returns false if the job is to stop: what is computed is kept. Throws
/// Error(config) or Error(data) as Teacher and TeacherStore, and Error(config) if a sample is
/// missing and there is no objective.teacher.
MT_API bool store_teacher(const Recipe& recipe, PluginHost& plugins, Communicator& ranks,
                          std::mutex& building, const TeacherPassOptions& options);

}  // namespace mtrain
