// mtrain rerun: repeats a run from the records in its folder.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
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

/// Whether an override gives the run's folder: run.dir=x, ++run.dir=x, run={dir: x}.
bool sets_run_folder(const OverrideText& override) {
  const std::string setting(setting_of_override(override.text));
  if (setting == "run.dir") return true;
  if (setting != "run") return false;
  Report ignored;
  const auto parsed = parse_override(override, ignored);
  return parsed && parsed->value && parsed->value->is_map() && parsed->value->find("dir");
}

/// "runs/first-rerun", or with the first unused number.
fs::path new_folder_next_to(const fs::path& run) {
  std::error_code ignored;
  const std::string name = fs::canonical(run, ignored).filename().string();  // `latest` is a link
  const std::string base = cat(name, "-rerun");
  // The folder above "." is not named in the path.
  const bool is_dots = run.filename() == "." || run.filename() == "..";
  const fs::path above = is_dots ? fs::canonical(run, ignored).parent_path() : run.parent_path();
  for (int i = 1;; ++i) {
    fs::path folder = above / (i == 1 ? base : cat(base, "-", i));
    if (!fs::exists(folder, ignored)) return folder;
  }
}

constexpr std::array<std::string_view, 4> kLengths = {"train.steps", "train.epochs",
                                                      "train.train_iters", "train.max_steps"};

/// A part of a run to repeat: settings, and the steps that were trained with them.
struct RunPart {
  SavedConfig saved;
  int64_t first = 0;
  std::optional<int64_t> last;  // absent: up to its train.steps
};

/// The records of the invocations that produced a run or checkpoint. A checkpoint belongs to the
/// last record with its settings.
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

/// The parts of a run from its first step; consecutive parts with the same settings are one. A run
/// without a complete history is one part with its newest settings, and a warning says so.
std::vector<RunPart> parts_of_run(const fs::path& path, bool log_missing) {
  SavedConfig saved = read_saved_config(path);
  std::vector<RunPart> out;
  const std::vector<HistoryPart> history_parts = parts_of_history(records_of(path, saved));
  const bool known = !history_parts.empty() && history_parts.front().first == 0 &&
                     (history_parts.front().invocation.number > 0 || history_parts.size() == 1);
  if (log_missing && !history_parts.empty() && !known) {
    const HistoryPart& oldest = history_parts.front();
    const bool older_version = oldest.invocation.number == 0;
    log_warn(path.string(), " does not say how its first ",
             older_version ? oldest.last.value_or(oldest.first) : oldest.first,
             " steps were trained, because ",
             older_version ? "an older version started it"
                           : cat("its history begins after step ", oldest.first),
             "; all steps are repeated with its newest settings, and the result may differ");
  }
  for (size_t i = 0; known && i < history_parts.size(); ++i) {
    SavedConfig texts = read_config_folder(history_parts[i].invocation.folder);
    if (!out.empty() && out.back().saved.resolved == texts.resolved)
      out.back().last = history_parts[i].last;
    else
      out.push_back({std::move(texts), history_parts[i].first, history_parts[i].last});
  }
  if (out.empty()) out.push_back({std::move(saved), 0, {}});
  // A run that a time limit ended is repeated to the same step, not for the same time.
  if (!out.back().last && has_time_limit(out.back().saved) && !history_parts.empty())
    out.back().last = history_parts.back().invocation.last_step;
  if (const auto step =
          checkpoints_of(path).step) {  // a checkpoint results from the steps up to it
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
  // A separate folder, so that nothing of the old run is continued or overwritten; the user's own
  // overrides come later.
  Location written{std::make_shared<Source>(SourceKind::command_line, "rerun", ""), 0, 0};
  std::vector<OverrideText> own = {
      {cat("run.dir=", override_value_text(Node::string(folder.string()))), 0, written},
      {"checkpoint.dir=''", 0, written},
      {"checkpoint.hf=''", 0, written},
      {"checkpoint.resume=auto", 0, written},
      {"train.max_minutes=0", 0, written}};
  if (!identity.name.empty())
    own.push_back({cat("run.name=", override_value_text(Node::string(identity.name))), 0, written});
  request.overrides.insert(request.overrides.begin(), own.begin(), own.end());
  return request;
}

/// Ranks that are processes can connect only once: such a job cannot run several parts one after
/// another.
bool of_processes(const Recipe& recipe) {
  const DistSection& dist = recipe.settings.dist;
  return launched_ranks() > 1 || (dist.comm && *dist.comm != "thread");
}

/// The last step of the run in a folder.
int64_t steps_done(const Recipe& recipe) {
  std::error_code ignored;
  if (!fs::is_directory(recipe.checkpoint_directory(), ignored)) return 0;
  return CheckpointStore(recipe.checkpoint_directory()).latest_valid().step.value_or(0);
}

/// Whether the user overrides a setting whose path satisfies `fits`.
bool sets(const std::vector<OverrideText>& overrides,
          const std::function<bool(std::string_view)>& fits) {
  return std::any_of(overrides.begin(), overrides.end(), [&](const OverrideText& override) {
    return fits(setting_of_override(override.text));
  });
}

/// A length is that of the whole run: its earlier parts keep theirs, by which they were scheduled.
bool is_length(const OverrideText& override) {
  const std::string_view setting = setting_of_override(override.text);
  return std::ranges::find(kLengths, setting) != kLengths.end();
}

/// Whether the user gives the length of the run, under any name of the setting, on the command line
/// or in a file of overrides.
bool sets_length(const Recipe& recipe, const std::vector<OverrideText>& overrides) {
  auto is_given = [&](const Location& where) {
    return where.source->kind() == SourceKind::command_line ||
           std::ranges::any_of(overrides, [&](const OverrideText& override) {
             return override.written && override.written.source->name() == where.source->name();
           });
  };
  for (const char* path : {"train.steps", "train.epochs"}) {
    const Node* node = recipe.config.root().find(path);
    if (node && node->loc() && is_given(node->loc())) return true;
  }
  return false;
}

/// What the user asks to be different.
struct Asked {
  bool data, weights;
};

/// Changed data and initial weights are refused, unless the user asks for them; other differences
/// are warnings.
void compare_with(const std::string& run, const SavedConfig& saved, const SavedConfig& now,
                  const Asked& asked) {
  const std::vector<std::string> weights = changed_weights(saved, now);
  if (!weights.empty() && !asked.weights)
    throw Error(ErrorClass::checkpoint,
                cat(run, " cannot be repeated, because the weights of ", join(weights, " and "),
                    " have changed since it began"),
                cat("restore them, or name the weights to use instead: ", weights.front(), "=…"));
  for (const std::string& setting : weights)
    log_warn("differs from ", run, ": the weights of ", setting, "; the result may differ");
  std::vector<std::string> data = changed_data(saved, now);
  if (!data.empty() && !asked.data)
    throw Error(ErrorClass::checkpoint,
                cat(run, " cannot be repeated, because its training data has changed:\n  ",
                    join(data, "\n  ")),
                "undo these changes, or name the data to use instead: dataset.path=…");
  for (const auto& list : {changed_since(saved, now), data})
    for (const auto& change : list)
      log_warn("differs from ", run, ": ", change, "; the result may differ");
}

/// Checks that a given folder is empty, or contains an interrupted repetition of the same run; else
/// Error(checkpoint).
void require_own_folder(const std::string& run, const std::vector<RunPart>& parts,
                        const std::vector<Recipe>& recipes, PluginHost& plugins) {
  const fs::path folder = recipes.back().run_directory();
  std::error_code ignored;
  const std::string fix = "choose another folder: run.dir=ANOTHER/FOLDER";
  MT_USER_CHECK(!fs::equivalent(folder, run_of(run), ignored), ErrorClass::checkpoint,
                cat(folder.string(), " is the run to be repeated, and would be continued"), fix);
  if (!continues_run(recipes.back())) return;
  const int64_t done = steps_done(recipes.back());
  size_t now = 0;
  while (now + 1 < parts.size() && parts[now].last && done > *parts[now].last) ++now;
  Recipe same = recipes[now];
  resolve_epochs(same, plugins);
  resolve_dtype(same, plugins);
  const std::vector<std::string> changes = changes_of_run(same, plugins, {"rng.seed"});
  MT_USER_CHECK(
      changes.empty(), ErrorClass::checkpoint,
      cat(folder.string(), " holds a run of another configuration:\n  ", join(changes, "\n  ")),
      fix);
}

/// A run whose ranks were processes must be started with processes again.
void require_ranks(const Recipe& recipe, const std::string& run) {
  const int64_t nproc = recipe.settings.dist.nproc;
  if (launched_ranks() > 1 || nproc < 2 || !of_processes(recipe)) return;
  throw Error(ErrorClass::config,
              cat(run, " was trained by ", nproc, " processes, and this is one process"),
              cat("start the same number: mtrain --nproc ", nproc, " rerun ", run,
                  ", or let ranks be threads: dist.comm=thread"));
}

/// Starts the ranks. All repeat the run in one new folder.
void launch_rerun(Cli& cli, const RecipeWords& words, int64_t nproc) {
  std::vector<std::string> names;
  const std::vector<OverrideText> overrides = sorted_words(cli, words, 1, names).overrides;
  const fs::path folder = new_folder_next_to(run_of(names[0]));
  Cli ranks = cli;
  if (std::none_of(overrides.begin(), overrides.end(), sets_run_folder))
    ranks.words.push_back(cat("run.dir=", override_value_text(Node::string(folder.string()))));
  cli.status = launch_recipe(
      ranks, rerun_request(cli, words, parts_of_run(names[0], false).back().saved, folder), nproc);
}

void rerun(Cli& cli, const RecipeWords& words) {
  std::vector<std::string> names;
  const std::vector<OverrideText> overrides = sorted_words(cli, words, 1, names).overrides;
  const Asked asked{sets(overrides, decides_data), sets(overrides, decides_weights)};
  const bool first = launched_rank() == 0;
  std::vector<RunPart> parts = parts_of_run(names[0], first);
  PluginHost plugins = plugin_host(cli);
  const fs::path folder = new_folder_next_to(run_of(names[0]));
  std::vector<Recipe> recipes;
  for (const auto& part : parts) {
    RecipeRequest request = rerun_request(cli, words, part.saved, folder);
    if (&part != &parts.back()) std::erase_if(request.overrides, is_length);
    recipes.push_back(load_recipe(request, plugins));
  }
  if (sets_length(recipes.back(), overrides)) parts.back().last.reset();
  require_ranks(recipes.back(), names[0]);
  if (parts.size() > 1 && std::any_of(recipes.begin(), recipes.end(), of_processes)) {
    if (first)
      log_warn("the settings of ", names[0],
               " changed during the run, which can be repeated only if ranks are threads: all "
               "steps are repeated with the newest settings, and the result may differ");
    parts = {{parts.back().saved, 0, parts.back().last}};
    recipes.erase(recipes.begin(), recipes.end() - 1);
  }
  require_own_folder(names[0], parts, recipes, plugins);
  for (size_t i = 0; i < parts.size() && cli.status == 0; ++i) {
    if (parts[i].last && steps_done(recipes[i]) >= *parts[i].last)
      continue;  // this part is already done
    if (first) print_warnings(recipes[i]);
    if (parts.size() > 1)
      log_info("part ", i + 1, " of ", parts.size(), " of the history of ", names[0], ": ",
               parts[i].last ? cat("steps ", parts[i].first + 1, " to ", *parts[i].last)
                             : cat("from step ", parts[i].first + 1, " on"));
    if (first) note_kept_dtype(recipes[i], parts[i].saved, plugins);
    auto log_changes = [&](const Trainer& trainer) {
      compare_with(names[0], parts[i].saved, trainer.saved_config(), asked);
    };
    cli.status = run_training(cli, recipes[i], plugins,
                              {.before_start = log_changes, .until = parts[i].last});
  }
}

}  // namespace

void add_rerun_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand(
      "rerun", "repeat a run from the records in its folder or checkpoint, in a new folder");
  auto words =
      add_recipe_words(*command, "RUN|CHECKPOINT", "a run's folder, or one of its checkpoints");
  command->footer(
      "Settings that changed on a resume change again at the same step. The same program, plugins "
      "and data give\nbit-identical losses; a warning reports differences, and steps that cannot "
      "be repeated exactly.\n"
      "Examples:\n"
      "  mtrain rerun runs/quickstart\n"
      "  mtrain --nproc 2 rerun runs/of-two-processes\n"
      "  mtrain rerun runs/quickstart rng.seed=2 run.dir=runs/other-seed");
  auto nproc = std::make_shared<int64_t>(0);
  command->add_option("--nproc", *nproc, "repeat it with this many processes on this machine")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->callback([&cli, words, nproc] {
    *nproc > 0 ? launch_rerun(cli, *words, *nproc) : rerun(cli, *words);
  });
}

}  // namespace mtrain
