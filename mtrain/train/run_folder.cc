#include "mtrain/train/run_folder.h"

#include <unistd.h>

#include <algorithm>

#include "mtrain/base/failpoint.h"
#include "mtrain/base/log.h"
#include "mtrain/checkpoint/run_lock.h"
#include "mtrain/record/run_ties.h"

namespace mtrain {
namespace {

// Points runs/latest to this run. Failing to create the link is only a warning.
void point_latest_at(const fs::path& run) {
  fs::path folder = fs::absolute(run).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  if (folder.parent_path().filename() != "runs" || folder.filename() == "latest") return;
  fs::path link = folder.parent_path() / "latest",
           temporary = folder.parent_path() / cat(".latest-", ::getpid());
  std::error_code error;
  if (fs::exists(fs::symlink_status(link, error)) &&
      !fs::is_symlink(fs::symlink_status(link, error)))
    return;
  fs::create_directory_symlink(folder.filename(), temporary, error);
  if (!error) fs::rename(temporary, link, error);
  if (error) log_warn("cannot create the link ", link.string(), ": ", error.message());
}

}  // namespace

Invocation write_run_folder(const Recipe& recipe, const SavedConfig& saved, int64_t first_step) {
  Invocation out =
      begin_invocation(saved, recipe.run_directory(), first_step, recipe.settings.train.steps);
  point_latest_at(recipe.run_directory());
  return out;
}

std::optional<RunLock> lock_run_folder(const Recipe& recipe) {
  const fs::path run = recipe.run_directory();
  failpoint("run.lock");
  make_directories(run);
  // In the same folder, the lock of the checkpoints suffices; a process cannot take a lock twice.
  if (same_folder(run, recipe.checkpoint_directory())) return std::nullopt;
  return RunLock(run);
}

NewRunFolders::NewRunFolders(const Recipe& recipe) : run_(recipe.run_directory()) {
  std::error_code ignored;
  had_lock_ = fs::exists(RunLock::file_of(run_), ignored);
  note(recipe.run_directory());
  note(recipe.checkpoint_directory());
}

void NewRunFolders::note(fs::path folder) {
  std::error_code ignored;
  folder = fs::absolute(folder).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  for (fs::path at = folder; !fs::exists(fs::symlink_status(at, ignored)) && at.has_relative_path();
       at = at.parent_path()) {
    if (at == folder) whole_.push_back(at);
    made_.push_back(at);
  }
}

void NewRunFolders::keep() {
  std::lock_guard lock(mutex_);
  made_.clear();
  had_lock_ = true;
}

NewRunFolders::~NewRunFolders() { remove(); }

void NewRunFolders::remove() {
  std::lock_guard lock(mutex_);
  std::error_code ignored;
  // Another job that started at the same time may have created them, too, and use them.
  if (RunLock::held_by_another(run_)) return;
  if (!had_lock_) fs::remove(RunLock::file_of(run_), ignored);
  for (const auto& folder : made_)
    if (std::find(whole_.begin(), whole_.end(), folder) == whole_.end())
      fs::remove(folder, ignored);  // a parent folder; fails if it is not empty, which is intended
    else if (!RunLock::held_by_another(folder))
      fs::remove_all(folder, ignored);
}

}  // namespace mtrain
