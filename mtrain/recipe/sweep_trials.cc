#include "mtrain/recipe/sweep_trials.h"

#include <algorithm>
#include <map>

#include "mtrain/base/error.h"
#include "mtrain/config/override_settings.h"
#include "mtrain/config/repository.h"
#include "mtrain/config/sweep.h"
#include "mtrain/config/text_settings.h"
#include "mtrain/recipe/search_path.h"

namespace mtrain {
namespace {

/// The recipe with its `sweep:` map, read without the overrides, which may have several values.
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

std::string without_sign(std::string_view key) {
  while (key.starts_with('+')) key.remove_prefix(1);
  return std::string(key);
}

/// Key and value of an override: "optimizer.lr" and "1e-3". Only the key if it has no value.
std::pair<std::string, std::string> key_and_value(const OverrideText& override) {
  if (override.raw) return {without_sign(override.text), *override.raw};
  const size_t equals = override.text.find('=');
  if (equals == std::string::npos) return {without_sign(override.text), ""};
  return {without_sign(std::string_view(override.text).substr(0, equals)),
          override.text.substr(equals + 1)};
}

/// The overrides of a sweep in which nothing varies. If a setting is given twice, only the last
/// one.
std::vector<std::pair<std::string, std::string>> given(const Sweep& sweep) {
  std::map<std::string, size_t> last;  // the last override that sets each setting
  for (size_t i = 0; i < sweep.fixed.size(); ++i)
    for (const auto& setting : sweep.fixed_settings[i]) last[setting] = i;
  std::vector<std::pair<std::string, std::string>> out;
  for (size_t i = 0; i < sweep.fixed.size(); ++i) {
    const auto& settings = sweep.fixed_settings[i];
    const bool replaced =
        !settings.empty() &&
        std::ranges::all_of(settings, [&](const auto& setting) { return last.at(setting) > i; });
    if (!replaced) out.push_back(key_and_value(sweep.fixed[i]));
  }
  return out;
}

/// The varied settings with their values in one trial; all settings if none varies.
std::vector<std::pair<std::string, std::string>> varying(const Sweep& sweep, uint64_t trial) {
  if (sweep.dimensions.empty()) return given(sweep);
  const auto values = sweep_values(sweep, trial);
  std::vector<std::pair<std::string, std::string>> out;
  for (size_t d = 0; d < sweep.dimensions.size(); ++d) {
    const auto& axes = sweep.dimensions[d].axes;
    for (size_t a = 0; a < axes.size(); ++a)
      out.emplace_back(without_sign(axes[a].key), values[d][a]);
  }
  return out;
}

/// The paths of these settings.
std::vector<std::string> paths_of(const Sweep& sweep) {
  std::vector<std::string> out;
  auto add = [&](const std::vector<std::string>& settings) {
    out.insert(out.end(), settings.begin(), settings.end());
  };
  for (const auto& dimension : sweep.dimensions)
    for (const auto& axis : dimension.axes) add(axis.settings);
  if (sweep.dimensions.empty())
    for (const auto& settings : sweep.fixed_settings) add(settings);
  return out;
}

/// Normalizes a path, so that equal folders have equal names.
fs::path folder_name(fs::path folder) {
  folder = folder.lexically_normal();
  return folder.has_filename() ? folder : folder.parent_path();
}

/// The deepest folder that contains both, or is one of them.
fs::path common_folder(const fs::path& a, const fs::path& b) {
  fs::path out;
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  for (auto part = a.begin(); part != end; ++part) out /= *part;
  return out.empty() ? fs::path(".") : out;
}

}  // namespace

std::vector<SweepTrial> sweep_trials(const RecipeRequest& request, const PluginHost& plugins) {
  MT_USER_CHECK(request.recipe != "-", ErrorClass::usage,
                "a sweep reads its recipe once for each trial", "put the recipe into a file");
  Recipe bare = bare_recipe(request, plugins);
  if (!bare.config.root().is_map()) bare.report.throw_if_errors();
  ConfigRepository repository(folders_of(request, plugins));
  SweepRequest wanted;
  wanted.recipe = &bare.config.composition().sweep;
  wanted.overrides = request.overrides;
  wanted.options_of = [&](const std::string& group) { return repository.options(group); };
  const SchemaCatalog catalog = schema_catalog(plugins);
  wanted.settings_of = [&](const std::string& key, const Node* value) {
    return settings_of(key, value, bare.config.composition().tree, catalog);
  };
  wanted.is_text = [&](const std::string& key) { return is_text_setting(key, catalog); };
  Report report;
  auto sweep = read_sweep(wanted, report);
  report.throw_if_errors();
  auto combinations = expand(*sweep, report);
  report.throw_if_errors();
  const std::vector<std::string> paths = paths_of(*sweep);
  std::vector<SweepTrial> out;
  for (auto& overrides : combinations) {
    SweepTrial trial;
    trial.settings = varying(*sweep, out.size());
    trial.paths = paths;
    for (const auto& [key, value] : trial.settings)
      trial.label += cat(trial.label.empty() ? "" : " ", key, "=", value);
    trial.request = request;
    trial.request.trial = static_cast<int64_t>(out.size());
    trial.request.overrides = std::move(overrides);
    out.push_back(std::move(trial));
  }
  return out;
}

SweepFolders sweep_folders(const std::vector<SweepTrial>& trials, const std::vector<bool>& faulty,
                           const PluginHost& plugins) {
  SweepFolders out;
  std::vector<std::pair<fs::path, size_t>> named;  // folders with their trials
  for (size_t i = 0; i < trials.size(); ++i) {
    out.of_trials.emplace_back();
    if (!faulty[i])
      named.emplace_back(folder_name(load_recipe(trials[i].request, plugins).run_directory()), i);
  }
  if (named.empty()) return out;
  std::sort(named.begin(), named.end());  // the content of a folder follows it directly
  out.common = common_folder(named.front().first, named.back().first);
  const bool one = named.front().first == named.back().first;
  for (size_t k = 0; k < named.size(); ++k) {
    const auto& [folder, trial] = named[k];
    out.of_trials[trial] = one ? folder / std::to_string(trials[trial].request.trial) : folder;
    if (one || k == 0 || common_folder(named[k - 1].first, folder) != named[k - 1].first) continue;
    throw Error(ErrorClass::config,
                cat("the sweep's trials ", named[k - 1].second, " (",
                    trials[named[k - 1].second].label, ") and ", trial, " (", trials[trial].label,
                    ") cannot have the folders ", named[k - 1].first.string(), " and ",
                    folder.string(), ": each trial needs its own folder"),
                "use all varied settings or ${run:trial} in run.dir; or use none of them, so that "
                "each trial has a numbered folder in run.dir");
  }
  return out;
}

}  // namespace mtrain
