#include "mtrain/train/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "mtrain/base/log.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/train/train_state.h"

namespace mtrain {
namespace {

// Makes runs/latest mean this run. A link that cannot be made is no reason to stop.
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
  if (error) log_warn("cannot make the link ", link.string(), ": ", error.message());
}

// "step-50" -> 50; -1 for any other name.
int64_t step_of(const fs::path& folder) {
  std::string name = folder.filename().string();
  if (!name.starts_with("step-")) return -1;
  int64_t step = -1;
  auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() ? step : -1;
}

/// The saved recipe for who only uses the model: the plugin of its optimizer may be gone. What is
/// said on the command line is checked.
Recipe recipe_without_optimizer(RecipeRequest request, const PluginHost& plugins) {
  Recipe recipe = read_recipe(request, plugins);
  Report rest;
  for (const Diagnostic& d : recipe.report.diagnostics()) {
    const bool said = d.where && d.where.source->kind() == SourceKind::command_line;
    if (d.severity == Severity::error && d.path.starts_with("optimizer.") && !said) continue;
    Diagnostic& kept = d.severity == Severity::error
                           ? rest.error(d.code, d.path, d.where, d.message)
                           : rest.warning(d.code, d.path, d.where, d.message);
    kept = d;
  }
  rest.throw_if_errors();
  recipe.report = std::move(rest);
  return recipe;
}

}  // namespace

Invocation write_run_folder(const Recipe& recipe, const SavedConfig& saved, int64_t first_step) {
  Invocation out =
      begin_invocation(saved, recipe.run_directory(), first_step, recipe.settings.train.steps);
  point_latest_at(recipe.run_directory());
  return out;
}

NewRunFolders::NewRunFolders(const Recipe& recipe) {
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
}

NewRunFolders::~NewRunFolders() { remove(); }

void NewRunFolders::remove() {
  std::lock_guard lock(mutex_);
  std::error_code ignored;
  for (const auto& folder : made_)
    if (std::find(whole_.begin(), whole_.end(), folder) != whole_.end())
      fs::remove_all(folder, ignored);
    else
      fs::remove(folder, ignored);  // a parent, where it is empty
}

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
                cat("point ", asked_by, " at a run's folder or at one of its checkpoints"));
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
  MT_USER_CHECK(latest.step.has_value(), ErrorClass::checkpoint,
                cat(given.string(), " holds no checkpoint"),
                cat("train first, or point ", asked_by, " at the folder of a run that did"));
  return {folder, *latest.step};
}

SavedRun open_saved_run(const fs::path& given, const std::vector<std::string>& overrides,
                        const PluginHost& plugins) {
  auto [folder, step] = find_saved_step(given);
  CheckpointStore store(folder);
  CheckpointMeta meta = meta_from_json(store.meta(step), store.step_folder(step).string());
  RecipeRequest request{.recipe = cat(store.step_folder(step).string(), " (its recipe)"),
                        .text = meta.config,
                        .resolved = true,
                        .directory = meta.directory};
  for (const auto& text : overrides)
    request.overrides.push_back({text, static_cast<int>(request.overrides.size()) + 2});
  SavedRun run{recipe_without_optimizer(std::move(request), plugins), folder, step, {}};
  run.recipe.name = meta.name;
  run.tokenizer = meta.tokenizer;
  if (meta.saved != "{}")
    run.config = saved_config_from_json(meta.saved, store.step_folder(step).string());
  return run;
}

}  // namespace mtrain
