// RunSummary: a summary of a run's folder: the last step, losses, invocations with the settings
// that each changed, and checkpoints. Read-only; stateless functions over values; safe from any
// thread.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/checkpoint/store.h"
#include "mtrain/record/run_history.h"

namespace mtrain {

/// A setting that an invocation changed.
struct SettingChange {
  std::string path, before, after,
      where;  // values as one line of YAML, empty when absent; `where`: where it was set
};

struct InvocationSummary {
  Invocation invocation;
  std::vector<std::string> overrides;
  std::vector<SettingChange> changes;  // relative to the previous invocation
  /// The steps that it trained and that still count; none when a later invocation began before them
  /// or the run was rewound.
  std::optional<int64_t> first, last;
  std::optional<double> loss;  // at `last`
};

/// The checkpoint of the validation with the lowest loss, of runs with validation.patience or
/// checkpoint.keep_best.
struct BestCheckpoint {
  int64_t step = 0;
  double loss = 0;
};

/// As the newest complete checkpoint says; none where that one does not say it, or where the best
/// one was not kept. `folder`: that of the checkpoints, `all`: its list.
MT_API std::optional<BestCheckpoint> best_checkpoint(const fs::path& folder,
                                                     const std::vector<CheckpointInfo>& all);

struct RunSummary {
  fs::path folder;
  int64_t step = 0, steps = 0;             // finished steps; train.steps, 0 when not known
  std::optional<int64_t> rewound_to;       // `checkpoint rewind` rewound it to this step, and no
                                           // invocation has trained since
  std::optional<double> loss, valid_loss;  // the latest that count; absent if
                                           // the newest steps have no metrics
  std::vector<InvocationSummary> invocations;
  std::vector<CheckpointInfo> checkpoints;
  std::optional<BestCheckpoint> best;
};

/// True when a folder is a run's folder.
MT_API bool is_run_folder(const fs::path& folder);
/// Error(checkpoint) when it is not a run's folder.
MT_API RunSummary summarize_run(const fs::path& folder);
/// The runs in a folder and in its subfolders, at most three levels deep, by name. Includes the
/// trials of a sweep that are in the folder of another run. Links are not followed.
MT_API std::vector<fs::path> find_runs(const fs::path& folder);

}  // namespace mtrain
