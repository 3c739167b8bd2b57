// mtrain rerun: the same run again, from the texts that it left behind.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iostream>

#include "launch.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/comm/launcher.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/launch/dtype_choice.h"
#include "mtrain/recipe/epochs.h"
#include "mtrain/recipe/resume.h"
#include "mtrain/record/run_history.h"
#include "mtrain/record/saved_config.h"
#include "recipe_words.h"
#include "training.h"

namespace mtrain {
namespace {

/// "runs/first-rerun", or with the first number that is free.
fs::path new_folder_beside(const fs::path& run) {
  std::error_code ignored;
  std::string base =
      cat(fs::canonical(run, ignored).filename().string(), "-rerun");  // `latest` is a link
  for (int i = 1;; ++i) {
    fs::path folder = run.parent_path() / (i == 1 ? base : cat(base, "-", i));
    if (!fs::exists(folder, ignored)) return folder;
  }
}

/// What is to be repeated: settings and the steps that they were responsible for.
struct Part {
  SavedConfig saved;
  int64_t first = 0;
  std::optional<int64_t> last;  // absent: as far as its train.steps
};

/// The records that led to what a run or checkpoint holds. A checkpoint belongs to the last record
/// with its settings.
std::vector<Invocation> records_of(const fs::path& path, const SavedConfig& saved) {
  std::vector<Invocation> history = run_history(run_of(path));
  auto is_of = [&](const Invocation& record) {
    return read_config_folder(record.folder).resolved == saved.resolved;
  };
  auto last = std::find_if(history.rbegin(), history.rend(), is_of);
  history.erase(last.base(), history.end());
  return history;
}

bool has_time_limit(const SavedConfig& saved) {
  const Node config = parse_yaml(saved.resolved, "the run's recipe");
  const Node* minutes = config.find("train.max_minutes");
  return minutes && minutes->is_scalar() && minutes->as_double() > 0;
}

/// The parts of a run from its first step on; those with the same settings are one. A run whose
/// beginning is not known is one part, with its newest settings, and is said to be.
std::vector<Part> parts_of(const fs::path& path, bool tell) {
  SavedConfig saved = read_saved_config(path);
  std::vector<Part> out;
  const std::vector<HistoryPart> history_parts = parts_of_history(records_of(path, saved));
  const bool known = !history_parts.empty() && history_parts.front().first == 0 &&
                     (history_parts.front().invocation.number > 0 || history_parts.size() == 1);
  if (tell && !history_parts.empty() && !known)
    log_warn(path.string(), " does not say how ",
             history_parts.front().last ? "its first " : "the steps up to ",
             history_parts.front().last.value_or(history_parts.front().first),
             history_parts.front().last ? " steps" : "",
             " were trained: an older version began it; all steps are repeated with its newest "
             "settings, and the result may differ");
  for (size_t i = 0; known && i < history_parts.size(); ++i) {
    SavedConfig texts = read_config_folder(history_parts[i].invocation.folder);
    if (!out.empty() && out.back().saved.resolved == texts.resolved)
      out.back().last = history_parts[i].last;
    else
      out.push_back({std::move(texts), history_parts[i].first, history_parts[i].last});
  }
  if (out.empty()) out.push_back({std::move(saved), 0, {}});
  // The time that a limit ended it after is not that of the repetition, so its steps count.
  if (!out.back().last && has_time_limit(out.back().saved) && !history_parts.empty())
    out.back().last = history_parts.back().invocation.last_step;
  if (const auto step =
          checkpoints_of(path).step) {  // a checkpoint is what the steps up to it made
    while (out.size() > 1 && out.back().first >= *step) out.pop_back();
    out.back().last = std::min(out.back().last.value_or(INT64_MAX), *step);
  }
  return out;
}

RecipeRequest rerun_request(const Cli& cli, const RecipeWords& words, const SavedConfig& saved,
                            const fs::path& folder) {
  std::vector<std::string> names;
  RecipeRequest request = sorted_words(cli, words, 1, names);
  SavedIdentity identity = identity_of(saved);
  request.recipe = cat(names[0], " (its recipe)");
  request.text = saved.resolved;
  request.resolved = true;
  request.launched = launched_ranks();
  request.directory =
      identity.directory.empty() ? fs::current_path() : fs::path(identity.directory);
  // Its own folder, so that nothing of the old run is continued or written over; a user's own
  // choice comes later.
  Location written{std::make_shared<Source>(SourceKind::command_line, "rerun", ""), 0, 0};
  std::vector<OverrideText> own = {
      {cat("run.dir=", override_value_text(Node::string(folder.string()))), 0, written},
      {"checkpoint.dir=''", 0, written},
      {"checkpoint.resume=auto", 0, written},
      {"train.max_minutes=0", 0, written}};
  if (!identity.name.empty())
    own.push_back({cat("run.name=", override_value_text(Node::string(identity.name))), 0, written});
  request.overrides.insert(request.overrides.begin(), own.begin(), own.end());
  return request;
}

/// Ranks that are processes meet once in the life of each: such a job cannot be one part after
/// another.
bool of_processes(const Recipe& recipe) {
  const DistSection& dist = recipe.settings.dist;
  return launched_ranks() > 1 || (dist.comm && *dist.comm != "thread");
}

/// How far the run in a folder has come.
int64_t steps_done(const Recipe& recipe) {
  std::error_code ignored;
  if (!fs::is_directory(recipe.checkpoint_directory(), ignored)) return 0;
  return CheckpointStore(recipe.checkpoint_directory()).latest_valid().step.value_or(0);
}

/// Whether the user sets a setting that `fits`, given its path.
bool sets(const std::vector<OverrideText>& overrides,
          const std::function<bool(std::string_view)>& fits) {
  return std::any_of(overrides.begin(), overrides.end(), [&](const OverrideText& override) {
    return fits(setting_of_override(override.text));
  });
}

bool decides_length(std::string_view key) { return key == "train.steps" || key == "train.epochs"; }

/// Other data are refused, as a resume refuses them, unless the user asks for them; what else
/// differs is a warning.
void compare_with(const std::string& run, const SavedConfig& saved, const SavedConfig& now,
                  bool other_data) {
  std::vector<std::string> data = changed_data(saved, now);
  if (!data.empty() && !other_data)
    throw Error(
        ErrorClass::checkpoint,
        cat(run, " cannot be repeated: what it was trained on has changed:\n  ",
            join(data, "\n  ")),
        "undo these changes, or name the data that are to be used all the same: dataset.path=…");
  for (const auto& list : {changed_since(saved, now), data})
    for (const auto& change : list)
      log_warn("not as in ", run, ": ", change, "; the result may differ");
}

/// A folder that was given holds nothing, or what an interrupted repetition of the same run left.
/// Error(checkpoint).
void require_own_folder(const std::string& run, const std::vector<Part>& parts,
                        const std::vector<Recipe>& recipes, PluginHost& plugins) {
  const fs::path folder = recipes.back().run_directory();
  std::error_code ignored;
  const std::string fix = "choose another folder: run.dir=ANOTHER/FOLDER";
  MT_USER_CHECK(!fs::equivalent(folder, run_of(run), ignored), ErrorClass::checkpoint,
                cat(folder.string(), " is the run that is to be repeated, and would be continued"),
                fix);
  if (!continues_run(recipes.back())) return;
  const int64_t done = steps_done(recipes.back());
  size_t now = 0;
  while (now + 1 < parts.size() && parts[now].last && done > *parts[now].last) ++now;
  Recipe same = recipes[now];
  settle_epochs(same, plugins);
  settle_dtype(same, plugins);
  const std::vector<std::string> changes = changes_of_run(same, plugins, {"rng.seed"});
  MT_USER_CHECK(
      changes.empty(), ErrorClass::checkpoint,
      cat(folder.string(), " holds a run of another configuration:\n  ", join(changes, "\n  ")),
      fix);
}

/// Ranks that were processes have to be started again.
void require_ranks(const Recipe& recipe, const std::string& run) {
  const int64_t nproc = recipe.settings.dist.nproc;
  if (launched_ranks() > 1 || nproc < 2 || !of_processes(recipe)) return;
  throw Error(ErrorClass::config,
              cat(run, " was trained by ", nproc, " processes, and this is one"),
              cat("start as many: mtrain --nproc ", nproc, " rerun ", run,
                  ", or let ranks be threads: dist.comm=thread"));
}

/// Starts the ranks, all of which repeat the run in one new folder.
void launch_rerun(Cli& cli, const RecipeWords& words, int64_t nproc) {
  std::vector<std::string> names;
  const std::vector<OverrideText> said = sorted_words(cli, words, 1, names).overrides;
  const fs::path folder = new_folder_beside(run_of(names[0]));
  Cli ranks = cli;
  auto is_folder = [](const OverrideText& override) {
    return override.text == "run.dir" || override.text.starts_with("run.dir=");
  };
  if (std::none_of(said.begin(), said.end(), is_folder))
    ranks.words.push_back(cat("run.dir=", override_value_text(Node::string(folder.string()))));
  cli.status = launch_recipe(
      ranks, rerun_request(cli, words, parts_of(names[0], false).back().saved, folder), nproc);
}

void rerun(Cli& cli, const RecipeWords& words) {
  std::vector<std::string> names;
  const std::vector<OverrideText> said = sorted_words(cli, words, 1, names).overrides;
  const bool other_data = sets(said, decides_data);
  const bool first = launched_rank() == 0;
  std::vector<Part> parts = parts_of(names[0], first);
  if (sets(said, decides_length)) parts.back().last.reset();
  PluginHost plugins = plugin_host(cli);
  const fs::path folder = new_folder_beside(run_of(names[0]));
  std::vector<Recipe> recipes;
  for (const auto& part : parts)
    recipes.push_back(load_recipe(rerun_request(cli, words, part.saved, folder), plugins));
  require_ranks(recipes.back(), names[0]);
  if (parts.size() > 1 && std::any_of(recipes.begin(), recipes.end(), of_processes)) {
    if (first)
      log_warn("the settings of ", names[0],
               " changed on the way, which is repeated only where ranks are threads: all steps are "
               "repeated "
               "with its newest settings, and the result may differ");
    parts = {{parts.back().saved, 0, parts.back().last}};
    recipes.erase(recipes.begin(), recipes.end() - 1);
  }
  require_own_folder(names[0], parts, recipes, plugins);
  for (size_t i = 0; i < parts.size() && cli.status == 0; ++i) {
    if (parts[i].last && steps_done(recipes[i]) >= *parts[i].last)
      continue;  // the same command again
    if (first) print_warnings(cli, recipes[i]);
    if (parts.size() > 1)
      log_info("part ", i + 1, " of ", parts.size(), " of the history of ", names[0], ": steps ",
               parts[i].first + 1, " to ",
               std::min(parts[i].last.value_or(INT64_MAX), recipes[i].settings.train.steps));
    if (first) note_kept_dtype(recipes[i], parts[i].saved, plugins);
    auto tell_changes = [&](const Trainer& trainer) {
      compare_with(names[0], parts[i].saved, trainer.saved_config(), other_data);
    };
    cli.status = run_training(cli, recipes[i], plugins,
                              {.before_start = tell_changes, .until = parts[i].last});
  }
}

}  // namespace

void add_rerun_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand(
      "rerun", "repeat a run from what its folder or checkpoint says, in a new folder");
  auto words =
      add_recipe_words(*command, "RUN|CHECKPOINT", "a run's folder, or one of its checkpoints");
  command->footer(
      "Settings that changed on a resume change again at the same step. The same program, plugins "
      "and data give the same\n"
      "losses, bit for bit; a warning says what differs, or which steps cannot be repeated as they "
      "were.\n"
      "Examples:\n"
      "  mtrain rerun runs/quickstart\n"
      "  mtrain --nproc 2 rerun runs/of-two-processes\n"
      "  mtrain rerun runs/quickstart rng.seed=2 run.dir=runs/other-seed");
  auto nproc = std::make_shared<int64_t>(0);
  command->add_option("--nproc", *nproc, "repeat it as this many processes of this machine")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->callback([&cli, words, nproc] {
    *nproc > 0 ? launch_rerun(cli, *words, *nproc) : rerun(cli, *words);
  });
}

}  // namespace mtrain
