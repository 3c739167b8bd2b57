#include "mtrain/record/saved_step.h"

#include <charconv>

#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/record/run_history.h"

namespace mtrain {
namespace {

// "step-50" -> 50; -1 for any other name.
int64_t step_of(const fs::path& folder) {
  std::string name = folder.filename().string();
  if (!name.starts_with("step-")) return -1;
  int64_t step = -1;
  auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() ? step : -1;
}

}  // namespace

bool is_saved_run(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored) || fs::exists(path / "config.json", ignored)) return false;
  const bool step = step_of(path.has_filename() ? path : path.parent_path()) >= 0;
  return step || fs::exists(path / "config" / "resolved.yaml", ignored) ||
         fs::is_directory(path / "checkpoints", ignored) || !CheckpointStore(path).list().empty();
}

SavedStep find_saved_step(const fs::path& given, const std::string& asked_by) {
  fs::path path = fs::absolute(given).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  MT_USER_CHECK(fs::is_directory(path), ErrorClass::checkpoint,
                cat(given.string(), " is not a folder"),
                cat("point ", asked_by, " to a run's folder or to one of its checkpoints"));
  const auto [folder, step] = checkpoints_of(path);
  CheckpointStore store(folder);
  if (step) {
    std::string problem = store.problem(*step);
    MT_USER_CHECK(problem.empty(), ErrorClass::checkpoint, problem,
                  "use another checkpoint of this run");
    return {folder, *step};
  }
  LatestCheckpoint latest = store.latest_valid();
  for (const auto& refused : latest.refused)
    log_warn("checkpoint of step ", refused.step, " is refused: ", refused.reason);
  MT_USER_CHECK(
      latest.step.has_value(), ErrorClass::checkpoint,
      cat(given.string(), " contains no checkpoint"),
      cat("train first, or point ", asked_by, " to the folder of a run that was trained"));
  return {folder, *latest.step};
}

}  // namespace mtrain
