// RunSummary: what a run's folder says about it — how far it came, its losses, its invocations with
// what each of them changed, its checkpoints. Read-only; stateless functions over values.
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
      where;  // values as one line of YAML; empty where there is no such setting; who set it
};

struct InvocationSummary {
  Invocation invocation;
  std::vector<std::string> overrides;
  std::vector<SettingChange> changes;  // against the invocation before
  /// The steps that it trained and that count; none where a later one began before them, or the run
  /// was taken back.
  std::optional<int64_t> first, last;
  std::optional<double> loss;  // at `last`
};

struct RunSummary {
  fs::path folder;
  int64_t step = 0, steps = 0;  // done; of train.steps, 0 when not known
  std::optional<int64_t>
      rewound_to;  // `checkpoint rewind` took it back to this step, and nothing has trained since
  std::optional<double> loss, valid_loss;  // the last ones that count
  std::vector<InvocationSummary> invocations;
  std::vector<CheckpointInfo> checkpoints;
};

/// Whether a folder is a run's.
MT_API bool is_run_folder(const fs::path& folder);
/// Error(checkpoint) where it is none.
MT_API RunSummary summarize_run(const fs::path& folder);
/// The runs in a folder and its folders (those of sweeps), by name; links are not followed.
MT_API std::vector<fs::path> find_runs(const fs::path& folder);

}  // namespace mtrain
