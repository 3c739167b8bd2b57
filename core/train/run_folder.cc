#include "mtrain/train/run_folder.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "mtrain/base/log.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/train/train_state.h"

namespace mtrain {
namespace {

std::string environment_json(const PluginHost& plugins) {
  utsname system{};
  uname(&system);
  auto loaded = nlohmann::ordered_json::array();
  for (const auto& plugin : plugins.loaded())
    loaded.push_back({{"kind", plugin.kind}, {"name", plugin.name}, {"identity", plugin.identity}});
  return nlohmann::ordered_json{{"mtrain", MT_VERSION},
                                {"host", system.nodename},
                                {"system", cat(system.sysname, " ", system.release, " ", system.machine)},
                                {"plugins", loaded}}
      .dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

// "step-50" -> 50; -1 for any other name.
int64_t step_of(const fs::path& folder) {
  std::string name = folder.filename().string();
  if (!name.starts_with("step-")) return -1;
  int64_t step = -1;
  auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() ? step : -1;
}

}  // namespace

void write_run_folder(const Recipe& recipe, const PluginHost& plugins) {
  fs::path folder = recipe.run_directory() / "config";
  make_directories(folder);
  std::string overrides;
  for (const auto& override : recipe.config.overrides()) overrides += override_line(override) + "\n";
  write_file_atomic(folder / "recipe.yaml", recipe.config.raw());
  write_file_atomic(folder / "overrides.txt", overrides);
  write_file_atomic(folder / "resolved.yaml", recipe.config.to_yaml());
  write_file_atomic(folder / "environment.json", environment_json(plugins));
}

SavedRun open_saved_run(const fs::path& given, const std::vector<std::string>& overrides, const PluginHost& plugins) {
  fs::path path = fs::absolute(given).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  MT_USER_CHECK(fs::is_directory(path), ErrorClass::checkpoint, cat(given.string(), " is no folder"),
                "point --from at a run's folder or at one of its checkpoints");
  int64_t step = step_of(path);
  fs::path folder = step >= 0 ? path.parent_path() : fs::is_directory(path / "checkpoints") ? path / "checkpoints" : path;
  CheckpointStore store(folder);
  if (step >= 0) {
    std::string problem = store.problem(step);
    MT_USER_CHECK(problem.empty(), ErrorClass::checkpoint, problem, "use another checkpoint of this run");
  } else {
    LatestCheckpoint latest = store.latest_valid();
    for (const auto& refused : latest.refused) log_warn("checkpoint of step ", refused.step, " is refused: ", refused.reason);
    MT_USER_CHECK(latest.step.has_value(), ErrorClass::checkpoint, cat(given.string(), " holds no checkpoint"),
                  "train first, or point --from at the folder of a run that did");
    step = *latest.step;
  }
  CheckpointMeta meta = meta_from_json(store.meta(step), store.step_folder(step).string());
  SavedRun run{recipe_from_text(meta.config, cat(store.step_folder(step).string(), " (its recipe)"), meta.directory, overrides, plugins),
               folder, step};
  run.recipe.name = meta.name;
  return run;
}

}  // namespace mtrain
