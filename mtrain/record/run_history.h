// The history of a run: the settings of each invocation that trained it, one record each:
// <run>/config/001, 002, … with the texts of SavedConfig and invocation.json. A record is written
// atomically before the first step of its invocation. Later only three values are added: the last
// step, the error that ended it, and the step to which `checkpoint rewind` took the run back. The
// names directly below config/ are links to the newest record (copies where the file system has no
// links). Stateless functions over values; safe from any thread.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/record/saved_config.h"

namespace mtrain {

/// The error that ended an invocation.
struct RunFailure {
  int64_t step = 0;    // finished steps
  int status = 0;      // of the process
  std::string reason;  // one line
};

struct Invocation {
  int number = 0;  // 0: settings of an old version without history
  fs::path folder;
  std::string version, started;       // of mtrain; the time, UTC
  int64_t first_step = 0;             // steps finished before this invocation
  int64_t steps = 0;                  // train.steps
  std::optional<int64_t> last_step;   // absent: it failed after a step, was killed or still trains
  std::optional<int64_t> rewound_to;  // the run was later rewound to this step
  std::optional<RunFailure> failure = {};  // absent: no error, or nobody could record it
};

/// The steps after `first` up to `last` that one invocation trained, without those that a later
/// invocation trained again.
struct HistoryPart {
  Invocation invocation;
  int64_t first = 0;
  std::optional<int64_t> last;  // absent: up to the end of the run
};

/// Writes the record of an invocation that is about to train. Error(io) when it cannot be written.
MT_API Invocation begin_invocation(const SavedConfig& saved, const fs::path& run,
                                   int64_t first_step, int64_t steps);
/// Records the last step. On failure, only logs a warning, since the run itself is saved.
MT_API void end_invocation(const Invocation& invocation, int64_t last_step);
/// Records the error that ends it. Steps after the last checkpoint are lost, so that they become no
/// last step; an invocation without a step ends where it began. Logs a warning if it cannot.
MT_API void fail_invocation(const Invocation& invocation, const RunFailure& failure);

/// Records that the run was rewound to `step`: later steps of its newest record no longer count.
/// Does nothing when the record has no such steps or the run has no record. Error(io) when it
/// cannot be written.
MT_API void note_rewind(const fs::path& run, int64_t step);

/// All records of a run, oldest first; empty when there are none. Error(checkpoint) when one cannot
/// be read.
MT_API std::vector<Invocation> run_history(const fs::path& run);
/// The invocations that produced the current state of the run. Excludes steps that were discarded
/// because a later invocation began before them or the run was rewound.
MT_API std::vector<HistoryPart> parts_of_history(const std::vector<Invocation>& history);
/// The step to which the run was rewound, if no invocation has trained since.
MT_API std::optional<int64_t> rewound_to(const std::vector<Invocation>& history);

/// The folder of the run that `path` belongs to. `path`: the run's folder, its folder of
/// checkpoints or one of them, even if checkpoint.dir is elsewhere.
MT_API fs::path run_of(fs::path path);
/// The folder of a run's checkpoints: from its newest record, else <run>/checkpoints.
MT_API fs::path checkpoint_folder_of(const fs::path& run);
/// The checkpoints at a path: a run's folder, a folder of checkpoints, or one step-N folder.
/// Error(checkpoint) when it is none of them.
MT_API CheckpointPlace checkpoints_of(const fs::path& path);

}  // namespace mtrain
