#include "mtrain/train/sweep_trials.h"

#include <set>

#include "mtrain/base/error.h"
#include "mtrain/config/repository.h"
#include "mtrain/config/sweep.h"
#include "mtrain/train/search_path.h"

namespace mtrain {
namespace {

/// The recipe's own `sweep:`, read without the overrides, which may hold several values.
Recipe bare_recipe(const RecipeRequest& request, const PluginHost& plugins) {
  RecipeRequest bare = request;
  bare.overrides.clear();
  return read_recipe(bare, plugins);
}

std::vector<fs::path> folders_of(const RecipeRequest& request, const PluginHost& plugins) {
  std::vector<fs::path> out;
  auto folders = search_folders(plugins.folders());
  if (auto found = find_recipe(request.recipe, folders)) out.push_back(found->file.parent_path());
  for (const auto& folder : folders) out.push_back(folder.path);
  return out;
}

}  // namespace

std::vector<SweepTrial> sweep_trials(const RecipeRequest& request, const PluginHost& plugins) {
  MT_USER_CHECK(request.recipe != "-", ErrorClass::usage, "a sweep reads its recipe once for each trial",
                "put the recipe into a file");
  Recipe bare = bare_recipe(request, plugins);
  if (!bare.config.root().is_map()) bare.report.throw_if_errors();
  ConfigRepository repository(folders_of(request, plugins));
  SweepRequest wanted;
  wanted.recipe = &bare.config.composition().sweep;
  wanted.overrides = request.overrides;
  wanted.options_of = [&](const std::string& group) { return repository.options(group); };
  Report report;
  auto sweep = read_sweep(wanted, report);
  report.throw_if_errors();
  auto combinations = expand(*sweep, report);
  report.throw_if_errors();
  std::set<std::string> fixed;
  for (const auto& override : sweep->fixed) fixed.insert(override.text);
  std::vector<SweepTrial> out;
  for (auto& overrides : combinations) {
    SweepTrial trial;
    for (const auto& override : overrides)
      if (!fixed.contains(override.text)) trial.label += cat(trial.label.empty() ? "" : " ", override.text);
    trial.request = request;
    trial.request.trial = static_cast<int64_t>(out.size());
    trial.request.overrides = std::move(overrides);
    out.push_back(std::move(trial));
  }
  return out;
}

}  // namespace mtrain
