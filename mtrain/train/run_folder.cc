#include "mtrain/train/run_folder.h"

#include <unistd.h>

#include <algorithm>

#include "mtrain/base/failpoint.h"
#include "mtrain/base/log.h"
#include "mtrain/checkpoint/run_lock.h"
#include "mtrain/record/run_ties.h"

namespace mtrain {
namespace {

/// The link `latest` of a run in a folder named runs; empty for any other run.
fs::path latest_of(const fs::path& run) {
  fs::path folder = fs::absolute(run).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  const bool among_runs =
      folder.parent_path().filename() == "runs" && folder.filename() != "latest";
  return among_runs ? folder.parent_path() / "latest" : fs::path();
}

// Failing to create the link is only a warning.
void point_latest(const fs::path& link, const fs::path& target) {
  fs::path temporary = link.parent_path() / cat(".latest-", ::getpid());
  std::error_code error;
  if (fs::exists(fs::symlink_status(link, error)) &&
      !fs::is_symlink(fs::symlink_status(link, error)))
    return;
  fs::create_directory_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, link, error);
  if (error) log_warn("cannot create the link ", link.string(), ": ", error.message());
}

/// The name of a run's folder.
fs::path folder_name(const fs::path& run) {
  const fs::path folder = fs::absolute(run).lexically_normal();
  return folder.has_filename() ? folder.filename() : folder.parent_path().filename();
}

}  // namespace

Invocation write_run_folder(const Recipe& recipe, const SavedConfig& saved, int64_t first_step) {
  Invocation out =
      begin_invocation(saved, recipe.run_directory(), first_step, recipe.settings.train.steps);
  if (const fs::path link = latest_of(recipe.run_directory()); !link.empty())
    point_latest(link, folder_name(recipe.run_directory()));
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

NewRunFolders::NewRunFolders(const Recipe& recipe)
    : run_(recipe.run_directory()), latest_(latest_of(run_)) {
  std::error_code ignored;
  if (!latest_.empty()) latest_target_ = fs::read_symlink(latest_, ignored);
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
  auto is_whole = [&](const fs::path& folder) {
    return std::find(whole_.begin(), whole_.end(), folder) != whole_.end();
  };
  for (const auto& folder : made_)
    if (is_whole(folder) && !RunLock::held_by_another(folder)) fs::remove_all(folder, ignored);
  restore_latest();
  for (const auto& folder : made_)  // a parent folder; fails if it is not empty, which is intended
    if (!is_whole(folder)) fs::remove(folder, ignored);
}

void NewRunFolders::restore_latest() const {
  std::error_code ignored;
  const bool left = !latest_.empty() && !fs::exists(run_, ignored) &&
                    fs::read_symlink(latest_, ignored) == folder_name(run_);
  if (!left) return;
  fs::remove(latest_, ignored);
  if (!latest_target_.empty() && latest_target_ != folder_name(run_))
    point_latest(latest_, latest_target_);
}

}  // namespace mtrain
