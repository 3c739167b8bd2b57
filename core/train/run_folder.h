// RunFolder: what a training run leaves beside its checkpoints, so that it can be understood and
// repeated: the recipe as it was written, the overrides, the resolved configuration, and the
// environment. Stateless.
#pragma once
#include <mutex>

#include "mtrain/train/recipe.h"
#include "mtrain/train/run_history.h"
#include "mtrain/train/saved_config.h"

namespace mtrain {

/// Adds a record of this invocation to the history of the run. Where the run folder is in a folder
/// called runs, the link `latest` there then points to it. For an invocation that is about to
/// train, from `first_step` on. Error(io) when it cannot be written: before the first step, not
/// after it.
MT_API Invocation write_run_folder(const Recipe& recipe, const SavedConfig& saved,
                                   int64_t first_step);

/// The folders that a run is about to write to. Those that were not there before go again, with
/// what is in them, unless keep() is called: a run that fails before its first step leaves nothing
/// behind. For one thread.
class MT_API NewRunFolders {
 public:
  /// Looks which of them are there; creates none.
  explicit NewRunFolders(const Recipe& recipe);
  ~NewRunFolders();
  NewRunFolders(const NewRunFolders&) = delete;
  NewRunFolders& operator=(const NewRunFolders&) = delete;
  void keep();
  /// Removes those that are not kept: also where the process ends without unwinding. Safe from any
  /// thread.
  void remove();

 private:
  void note(fs::path folder);
  std::mutex mutex_;
  std::vector<fs::path> whole_,
      made_;  // the folders themselves; all that were not there, the innermost first
};

/// A checkpoint of a run.
struct SavedStep {
  fs::path checkpoints;  // the folder that holds it
  int64_t step = 0;
};
/// Whether a folder is a run's, or one of its checkpoints.
MT_API bool is_saved_run(const fs::path& path);
/// `path`: a run folder, a folder of checkpoints, or one step-N folder. Takes the newest valid
/// checkpoint unless one is named. `asked_by`: what the path was given as, for the hint.
/// Error(checkpoint) when there is none.
MT_API SavedStep find_saved_step(const fs::path& path, const std::string& asked_by = "--from");

/// A recipe and the checkpoint folder it belongs to, found from what a user points at.
struct SavedRun {
  Recipe recipe;
  fs::path checkpoints;
  int64_t step = 0;
  SavedConfig config;  // what the checkpoint says of its run; empty in those of old versions
  std::string tokenizer = {};  // identity of the one that it was trained with
};
/// find_saved_step() and the recipe kept in that checkpoint, with `overrides` on top.
MT_API SavedRun open_saved_run(const fs::path& path, const std::vector<std::string>& overrides,
                               const PluginHost& plugins);

}  // namespace mtrain
