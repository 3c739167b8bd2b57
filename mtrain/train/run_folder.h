// Writes a run's folder: the recipe as written, the overrides, the resolved configuration and the
// environment, so that the run can be understood and repeated. Stateless functions, and
// NewRunFolders.
#pragma once
#include <mutex>
#include <optional>

#include "mtrain/checkpoint/run_lock.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/record/run_history.h"
#include "mtrain/record/saved_config.h"

namespace mtrain {

/// Adds a record of this invocation to the history of the run, which is about to train from
/// `first_step` on. If the run folder is in a folder named runs, points the link `latest` there to
/// it. Error(io) if the folder cannot be written, so that the run fails before its first step and
/// not after it.
MT_API Invocation write_run_folder(const Recipe& recipe, const SavedConfig& saved,
                                   int64_t first_step);

/// Creates the run's folder and takes its lock, so that two jobs cannot write to one run, wherever
/// their checkpoints are. Absent when the checkpoints are in the same folder, whose lock the
/// CheckpointStore takes. Error(io) when another job holds it.
MT_API std::optional<RunLock> lock_run_folder(const Recipe& recipe);

/// The folders that a run will write to. Unless keep() is called, the destructor removes those that
/// did not exist before, with their content, so that a run that fails before its first step is done
/// leaves nothing behind; the link `latest` then points to the run to which it pointed. In a folder
/// that was there, its lock file is removed if it is new. Folders that another job has locked stay.
/// Only keep() and remove() are safe from any thread.
class MT_API NewRunFolders {
 public:
  /// Records which of them exist; creates none.
  explicit NewRunFolders(const Recipe& recipe);
  ~NewRunFolders();
  NewRunFolders(const NewRunFolders&) = delete;
  NewRunFolders& operator=(const NewRunFolders&) = delete;
  /// Call it when the run has done a step: from then on nothing is removed.
  void keep();
  /// Removes those that are not kept; also call it before the process ends without unwinding. Safe
  /// from any thread.
  void remove();

 private:
  void note(fs::path folder);
  void restore_latest() const;
  std::mutex mutex_;
  fs::path run_, latest_, latest_target_;  // of the link `latest`; empty: there is none
  bool had_lock_ = false;
  std::vector<fs::path> whole_,
      made_;  // whole_: the folders themselves; made_: all that did not exist, including parents,
              // innermost first
};

}  // namespace mtrain
