// mtrain runs: lists runs, and shows the history of one run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/run_lock.h"
#include "mtrain/record/run_summary.h"

namespace mtrain {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

std::string loss_text(const std::optional<double>& loss) {
  return loss ? fmt::format("{:.4f}", *loss) : "-";
}

std::string steps_text(const RunSummary& run) {
  return run.steps > 0 ? cat(run.step, "/", run.steps) : cat(run.step);
}

Json row(const RunSummary& run) {
  return {{"run", run.folder.lexically_normal().string()},
          {"step", run.step},
          {"steps", run.steps},
          {"rewound", run.rewound_to.has_value()},
          {"loss", or_null(run.loss)},
          {"val_loss", or_null(run.valid_loss)},
          {"started",
           run.invocations.empty() ? Json() : Json(run.invocations.front().invocation.started)}};
}

/// A run that cannot be read affects only its own line, not the list.
void list_runs(const Cli& cli, const fs::path& folder, bool json) {
  std::error_code ignored;
  MT_USER_CHECK(fs::is_directory(folder, ignored), ErrorClass::usage,
                cat("there is no folder ", printable(folder.string())),
                "mtrain runs ls DIR lists the runs in DIR; the default is runs");
  const std::vector<fs::path> runs = find_runs(folder);
  size_t width = 3;
  for (const auto& run : runs) width = std::max(width, run.string().size());
  Json rows = Json::array();
  if (!json && !runs.empty())
    std::cout << fmt::format("{:{}}  {:>13}  {:>9}  {:>9}  {}\n", "run", width, "step", "loss",
                             "val loss", "started");
  for (const auto& path : runs) {
    try {
      const RunSummary run = summarize_run(path);
      rows.push_back(row(run));
      if (!json)
        std::cout << fmt::format(
            "{:{}}  {:>13}  {:>9}  {:>9}  {}\n", path.lexically_normal().string(), width,
            steps_text(run), loss_text(run.loss), loss_text(run.valid_loss),
            run.invocations.empty() ? "-" : run.invocations.front().invocation.started);
    } catch (const Error& error) {
      rows.push_back({{"run", path.string()}, {"problem", error.message()}});
      if (!json)
        std::cout << fmt::format("{:{}}  {}\n", path.string(), width, printable(error.message()));
    }
  }
  if (json) return print_json(rows);
  if (runs.empty() && !cli.quiet) std::cout << "no runs in " << printable(folder.string()) << '\n';
}

constexpr const char* kFailed = "failed before its first step was done";

/// Only a failure ends an invocation that was about to train without a step.
bool failed_at_once(const Invocation& invocation) {
  return invocation.last_step == invocation.first_step && invocation.steps > invocation.first_step;
}

/// Its end was recorded.
bool is_over(const Invocation& invocation) {
  return invocation.last_step.has_value() || invocation.failure.has_value();
}

Json failure_json(const Invocation& invocation) {
  if (!invocation.failure) return {};
  const RunFailure& failure = *invocation.failure;
  return {{"step", failure.step}, {"status", failure.status}, {"reason", failure.reason}};
}

/// Whether an invocation is training now; nothing where the folder's lock does not say. Only the
/// newest one of a run can be.
std::optional<bool> is_training(const Invocation& invocation, const RunSummary& run) {
  if (is_over(invocation) || &invocation != &run.invocations.back().invocation) return false;
  if (RunLock::is_free(run.folder)) return false;
  return RunLock::held_by_another(run.folder) ? std::optional(true) : std::nullopt;
}

/// How it ended; empty: as it was to end.
std::string end_text(const Invocation& invocation, const RunSummary& run) {
  if (!is_over(invocation)) {
    const std::optional<bool> training = is_training(invocation, run);
    return !training   ? "; was interrupted, or is still training"
           : *training ? "; is training"
                       : "; was interrupted";
  }
  if (!invocation.failure) return "";
  const RunFailure& failure = *invocation.failure;
  const std::string after =
      failed_at_once(invocation) ? "" : cat("failed after step ", failure.step, " ");
  return cat("; ", after, "with status ", failure.status, ": ", printable(failure.reason, 400));
}

bool has_steps(const InvocationSummary& item) { return item.first && *item.last > *item.first; }

Json show_json(const RunSummary& run) {
  Json out = row(run);
  Json invocations = Json::array(), checkpoints = Json::array();
  for (const auto& item : run.invocations) {
    Json changes = Json::array();
    for (const auto& change : item.changes)
      changes.push_back({{"path", change.path},
                         {"before", change.before},
                         {"after", change.after},
                         {"where", change.where}});
    invocations.push_back({{"number", item.invocation.number},
                           {"folder", item.invocation.folder.string()},
                           {"mtrain", item.invocation.version},
                           {"started", item.invocation.started},
                           {"first_step", has_steps(item) ? Json(*item.first + 1) : Json()},
                           {"last_step", has_steps(item) ? Json(*item.last) : Json()},
                           {"loss", or_null(item.loss)},
                           {"ended", is_over(item.invocation)},
                           {"training", or_null(is_training(item.invocation, run))},
                           {"failure", failure_json(item.invocation)},
                           {"overrides", item.overrides},
                           {"changes", changes}});
  }
  for (const auto& info : run.checkpoints)
    checkpoints.push_back({{"step", info.step},
                           {"bytes", info.bytes},
                           {"time", info.created},
                           {"best", run.best && run.best->step == info.step},
                           {"problem", info.problem}});
  out["invocations"] = std::move(invocations);
  out["checkpoints"] = std::move(checkpoints);
  return out;
}

void show_invocation(const InvocationSummary& item, const RunSummary& run) {
  const Invocation& invocation = item.invocation;
  if (invocation.number == 0) {
    std::cout << "  000  settings of an older version, which recorded no history\n";
    return;
  }
  const std::string steps = !item.first ? "no remaining steps: the run went back to an earlier step"
                            : !has_steps(item) ? (failed_at_once(invocation) ? kFailed : "no step")
                                               : cat("steps ", *item.first + 1, " to ", *item.last);
  std::cout << fmt::format("  {:03}  {}, {}; mtrain {}{}{}\n", invocation.number,
                           invocation.started, steps, invocation.version,
                           item.loss && has_steps(item) ? ", loss " + loss_text(item.loss) : "",
                           end_text(invocation, run));
  if (invocation.number == 1 && !item.overrides.empty())
    std::cout << "       " << printable(join(item.overrides, " "), 400) << '\n';
  for (const auto& change : item.changes)
    std::cout << fmt::format("       {}: {} -> {}{}\n", change.path,
                             change.before.empty() ? "absent" : change.before,
                             change.after.empty() ? "absent" : change.after,
                             change.where.empty() ? "" : cat("   (", change.where, ")"));
}

void show_run(const fs::path& folder, bool json) {
  const RunSummary run = summarize_run(run_of(folder));
  if (json) return print_json(show_json(run));
  std::cout << fmt::format("{}: step {}{}, loss {}, valid loss {}\n", run.folder.string(),
                           steps_text(run), run.rewound_to ? " (after checkpoint rewind)" : "",
                           loss_text(run.loss), loss_text(run.valid_loss));
  std::cout << "invocations" << (run.invocations.empty() ? ": none recorded\n" : "\n");
  for (const auto& item : run.invocations) show_invocation(item, run);
  std::cout << "checkpoints" << (run.checkpoints.empty() ? ": none\n" : "\n");
  for (const auto& info : run.checkpoints)
    std::cout << fmt::format("  step-{}  {}{}\n", info.step,
                             info.problem.empty() ? human_bytes(info.bytes)
                                                  : "cannot be used: " + printable(info.problem),
                             run.best && run.best->step == info.step
                                 ? ", the lowest validation loss: " + loss_text(run.best->loss)
                                 : "");
}

}  // namespace

void add_runs_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("runs", "list runs, and show the history of one");
  command->require_subcommand(1);
  command->footer("Examples:\n  mtrain runs ls\n  mtrain runs show runs/latest");
  auto* ls = command->add_subcommand("ls", "list the runs in a folder with their steps and losses");
  auto folder = std::make_shared<std::string>("runs"), run = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  ls->add_option("folder", *folder, "the folder to search, including its subfolders")
      ->capture_default_str()
      ->type_name("DIR");
  ls->add_flag("--json", *json, "print as JSON");
  ls->footer("Examples:\n  mtrain runs ls\n  mtrain runs ls sweeps/lr --json");
  ls->callback([&cli, folder, json] { list_runs(cli, *folder, *json); });
  auto* one = command->add_subcommand(
      "show",
      "show a run's history: each invocation with its steps and changed settings; checkpoints");
  one->add_option("run", *run, "the run's folder, or one of its checkpoints")
      ->required()
      ->type_name("RUN");
  one->add_flag("--json", *json, "print as JSON");
  one->footer("Examples:\n  mtrain runs show runs/latest\n  mtrain runs show runs/first --json");
  one->callback([run, json] { show_run(*run, *json); });
}

}  // namespace mtrain
