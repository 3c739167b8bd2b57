// Finds the checkpoint at a path: the newest valid one of a run's folder or of a folder of
// checkpoints, or one step-N folder. Stateless functions; safe from any thread.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/base/file.h"

namespace mtrain {

/// A checkpoint of a run.
struct SavedStep {
  fs::path checkpoints;  // the folder that holds it
  int64_t step = 0;
};
/// True when a path is a run's folder or one of its checkpoints.
MT_API bool is_saved_run(const fs::path& path);
/// `path`: a run folder, a folder of checkpoints, or one step-N folder. Returns the newest valid
/// checkpoint, or the one of a step-N folder. `asked_by`: the option that gave the path, for the
/// hint. Error(checkpoint) when there is none.
MT_API SavedStep find_saved_step(const fs::path& path, const std::string& asked_by = "--from");

}  // namespace mtrain
