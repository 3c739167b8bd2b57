// RunHistory: the settings of each invocation that trained a run, one record each:
// <run>/config/001, 002, … with the texts of SavedConfig and invocation.json. A record appears as a
// whole, before the first step that it is responsible for, and is never changed but for its last
// step and the step that `checkpoint rewind` took the run back to. The names directly below config/
// are links to the newest record. Stateless functions over values.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/record/saved_config.h"

namespace mtrain {

struct Invocation {
  int number = 0;  // 0: settings of a version that kept no history
  fs::path folder;
  std::string version, started;       // of mtrain; the time, UTC
  int64_t first_step = 0;             // steps that were done before
  int64_t steps = 0;                  // train.steps
  std::optional<int64_t> last_step;   // absent: it was killed, or is training now
  std::optional<int64_t> rewound_to;  // after it, the run was taken back to this step
};

/// Steps after `first` up to `last` as one invocation trained them; those of it that a later one
/// trained again are not among them.
struct HistoryPart {
  Invocation invocation;
  int64_t first = 0;
  std::optional<int64_t> last;  // absent: up to the end of the run
};

/// Writes the record of an invocation that is about to train. Error(io) when it cannot be written.
MT_API Invocation begin_invocation(const SavedConfig& saved, const fs::path& run,
                                   int64_t first_step, int64_t steps);
/// Notes how far it came. A failure is warned of: the run itself is saved.
MT_API void end_invocation(const Invocation& invocation, int64_t last_step);

/// Notes that the run went back to an older checkpoint: steps of its newest record after `step` do
/// not count. Does nothing where the record has no such steps, or the run has no record. Error(io)
/// when it cannot be written.
MT_API void note_rewind(const fs::path& run, int64_t step);

/// All records of a run, oldest first; empty where there are none. Error(checkpoint) for one that
/// cannot be read.
MT_API std::vector<Invocation> run_history(const fs::path& run);
/// What made the run as it is: where an invocation began at an earlier step than others had
/// reached, or the run was taken back, those later steps are gone.
MT_API std::vector<HistoryPart> parts_of_history(const std::vector<Invocation>& history);
/// The run has been taken back to this step, and no invocation has trained since.
MT_API std::optional<int64_t> rewound_to(const std::vector<Invocation>& history);

/// The run that a path belongs to: its folder, its folder of checkpoints or one of them, also where
/// checkpoint.dir put them elsewhere.
MT_API fs::path run_of(fs::path path);
/// The folder of a run's checkpoints: where its newest record says that they are, else
/// <run>/checkpoints.
MT_API fs::path checkpoint_folder_of(const fs::path& run);
/// The checkpoints that a path means: a run's, those of a folder of checkpoints, or one step-N
/// folder. Error(checkpoint) when it is none of them.
MT_API CheckpointPlace checkpoints_of(const fs::path& path);

}  // namespace mtrain
