// Checks before the first step that a run's folder and its folder of checkpoints belong together,
// so that no run is restarted or continued with another run's state by a change of run.dir or
// checkpoint.dir. Stateless functions that only read; safe from any thread.
#pragma once
#include <cstdint>
#include <optional>

#include "mtrain/base/file.h"

namespace mtrain {

/// True when both paths name one folder, or will when it is created.
MT_API bool same_folder(const fs::path& a, const fs::path& b);

/// For checkpoint.resume=never. Error(checkpoint) when the run's folder contains metrics, records
/// or checkpoints, or `checkpoints` contains checkpoints.
MT_API void require_no_run(const fs::path& run, const fs::path& checkpoints);

/// `step`: the checkpoint from which the run is to continue; absent: it starts. Error(checkpoint)
///   - when the run's history continues from newer checkpoints in another folder,
///   - when there is no checkpoint, but the run's folder contains steps of a run that saved some,
///   - when the checkpoint was saved by an invocation that is not in the run's history.
/// Logs a warning when an invocation that saved no checkpoint is repeated.
MT_API void require_same_run(const fs::path& run, const fs::path& checkpoints,
                             std::optional<int64_t> step);

/// require_same_run() for the newest checkpoint in `checkpoints`, before the start is prepared;
/// does nothing where there is none.
MT_API void require_own_checkpoints(const fs::path& run, const fs::path& checkpoints);

}  // namespace mtrain
