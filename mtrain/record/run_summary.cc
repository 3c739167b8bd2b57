#include "mtrain/record/run_summary.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/config/diff.h"
#include "mtrain/config/share.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/record/train_state.h"

namespace mtrain {
namespace {

constexpr int kMaxDepth = 3;  // of folders of runs
constexpr size_t kMaxValue = 60;

struct Losses {
  std::map<int64_t, double> train, valid;  // by step
  int64_t newest = 0;                      // the newest step with a row, if only of null values

  static std::optional<double> at(const std::map<int64_t, double>& of, int64_t step) {
    auto found = of.find(step);
    return found == of.end() ? std::nullopt : std::optional(found->second);
  }
  void forget_after(int64_t step) {
    newest = std::min(newest, step);
    for (auto* of : {&train, &valid}) of->erase(of->upper_bound(step), of->end());
  }
  static std::optional<double> last(const std::map<int64_t, double>& of) {
    return of.empty() ? std::nullopt : std::optional(of.rbegin()->second);
  }
};

/// Ignores an incomplete line, which a killed run can leave.
Losses read_losses(const fs::path& file) {
  Losses out;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) continue;
    const int64_t step = row["step"].get<int64_t>();
    out.newest = std::max(out.newest, step);
    for (auto [key, into] : {std::pair{"loss", &out.train}, {"val_loss", &out.valid}})
      if (row.contains(key) && row[key].is_number()) (*into)[step] = row[key].get<double>();
  }
  return out;
}

/// Settings that are a share of train.steps, such as scheduler.warmup_steps=5%, with the number of
/// steps that it is: "5% (50 steps)".
std::map<std::string, std::string> shares_of_steps(const Node& settings) {
  std::map<std::string, std::string> out;
  const Node *scheduler = settings.find("scheduler"), *steps = settings.find("train.steps");
  if (!scheduler || !scheduler->is_map() || !steps || !steps->is(NodeKind::integer)) return out;
  for (const auto& entry : scheduler->entries()) {
    if (!entry.value.is(NodeKind::string)) continue;
    if (const auto part = parse_share(entry.value.as_text()))
      out["scheduler." + entry.key] =
          cat(entry.value.as_text(), " (", counted(share_of(*part, steps->as_int()), "step"), ")");
  }
  return out;
}

std::vector<SettingChange> changes_between(const SavedConfig& before, const SavedConfig& now) {
  std::vector<SettingChange> out;
  const Node a = parse_yaml(before.resolved, "before"), b = parse_yaml(now.resolved, "now");
  auto origins = origins_of(now);
  for (const auto& d : differences(a, b))
    out.push_back({d.path, d.before ? brief(*d.before, kMaxValue) : "",
                   d.after ? brief(*d.after, kMaxValue) : "", origins[d.path]});
  // A share is the same text, but another number of steps where train.steps has changed.
  auto shares = shares_of_steps(a), shares_now = shares_of_steps(b);
  for (const auto& [path, now] : shares_now) {
    const auto was = shares.find(path);
    const bool listed =
        std::ranges::any_of(out, [&](const SettingChange& c) { return c.path == path; });
    if (was != shares.end() && was->second != now && !listed)
      out.push_back({path, was->second, now, "of train.steps"});
  }
  return out;
}

/// Computes which steps of each invocation still count. `reached`: the newest known step of the
/// run.
void count_steps(RunSummary& run, const std::vector<Invocation>& history, int64_t reached,
                 const Losses& losses) {
  for (const auto& part : parts_of_history(history)) {
    auto of = std::find_if(
        run.invocations.begin(), run.invocations.end(),
        [&](const InvocationSummary& i) { return i.invocation.number == part.invocation.number; });
    of->first = part.first;
    const int64_t end =
        part.last.value_or(part.invocation.last_step.value_or(std::max(reached, part.first)));
    of->last = run.rewound_to ? std::min(end, std::max(*run.rewound_to, part.first)) : end;
    of->loss = Losses::at(losses.train, *of->last);
  }
}

}  // namespace

std::optional<BestCheckpoint> best_checkpoint(const fs::path& folder,
                                              const std::vector<CheckpointInfo>& all) {
  auto complete = [&](int64_t step) {
    return std::ranges::any_of(all, [&](const CheckpointInfo& info) {
      return info.step == step && info.problem.empty() && !info.unknown;
    });
  };
  const auto newest = std::find_if(all.rbegin(), all.rend(),
                                   [&](const CheckpointInfo& info) { return complete(info.step); });
  if (newest == all.rend()) return std::nullopt;
  TrainState::Validations v;
  try {
    v = meta_from_json(CheckpointStore(folder).meta(newest->step), newest->path.string())
            .state.validations;
  } catch (const Error&) {  // it is not that of a run, or cannot be read: verify reports it
  }
  if (v.last < 0) return std::nullopt;
  for (const BestCheckpoint& best :
       {BestCheckpoint{v.best_step, v.best_loss}, {v.kept_step, v.kept_loss}})
    if (complete(best.step)) return best;
  return std::nullopt;
}

bool is_run_folder(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "config" / "resolved.yaml", ignored) || !run_history(folder).empty() ||
         fs::is_directory(folder / "checkpoints", ignored);
}

RunSummary summarize_run(const fs::path& folder) {
  MT_USER_CHECK(is_run_folder(folder), ErrorClass::checkpoint,
                cat(printable(folder.string()), " is not the folder of a run"),
                "list the runs of a folder: mtrain runs ls DIR");
  RunSummary out{.folder = folder,
                 .rewound_to = {},
                 .loss = {},
                 .valid_loss = {},
                 .invocations = {},
                 .checkpoints = {},
                 .best = {}};
  const std::vector<Invocation> history = run_history(folder);
  Losses losses = read_losses(folder / "metrics.jsonl");
  out.rewound_to = rewound_to(history);
  if (out.rewound_to)
    losses.forget_after(*out.rewound_to);  // the file still contains them until the run continues
  std::error_code ignored;
  if (const fs::path checkpoints = checkpoint_folder_of(folder);
      fs::is_directory(checkpoints, ignored)) {
    out.checkpoints = CheckpointStore(checkpoints).list();
    out.best = best_checkpoint(checkpoints, out.checkpoints);
  }
  for (const auto& checkpoint : out.checkpoints)
    if (checkpoint.problem.empty()) out.step = std::max(out.step, checkpoint.step);
  out.step = std::max(out.step, losses.newest);
  // Absent after steps that were trained with logger.metrics=false.
  const bool newest = losses.newest == out.step;
  out.loss = newest ? Losses::last(losses.train) : std::nullopt;
  out.valid_loss = newest ? Losses::last(losses.valid) : std::nullopt;
  std::optional<SavedConfig> before;
  for (const auto& invocation : history) {
    SavedConfig texts = read_config_folder(invocation.folder);
    out.invocations.push_back(
        {invocation,
         texts.overrides,
         before ? changes_between(*before, texts) : std::vector<SettingChange>(),
         {},
         {},
         {}});
    before = std::move(texts);
  }
  if (!history.empty()) out.steps = history.back().steps;
  count_steps(out, history, out.step, losses);
  return out;
}

std::vector<fs::path> find_runs(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code ignored;
  auto look = [&](auto& self, const fs::path& at, int depth) -> void {
    const bool run = is_run_folder(at);
    if (run) out.push_back(at);
    if (depth == kMaxDepth) return;
    // Trials of a sweep may lie in the folder of a run: both have the recipe's name by default.
    auto of_run = [&](const fs::path& name) { return name == "config" || name == "checkpoints"; };
    for (fs::directory_iterator it(at, ignored), end; !ignored && it != end; it.increment(ignored))
      if (it->is_directory(ignored) && !it->is_symlink(ignored) &&
          !(run && of_run(it->path().filename())))
        self(self, it->path(), depth + 1);
    ignored.clear();
  };
  look(look, folder, 0);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace mtrain
