#include "mtrain/record/run_ties.h"

#include <algorithm>
#include <string>
#include <vector>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/config/setting_word.h"
#include "mtrain/record/run_history.h"
#include "mtrain/record/saved_config.h"
#include "mtrain/record/train_state.h"

namespace mtrain {
namespace {

constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kNewRun = "to start a new run, choose another run.dir";

std::string shown(const fs::path& path) { return printable(path.string()); }

fs::path normal(const fs::path& path) {
  std::error_code ignored;
  fs::path out = fs::weakly_canonical(path, ignored);
  if (out.empty()) out = fs::absolute(path, ignored).lexically_normal();
  return out.has_filename() ? out : out.parent_path();
}

bool has_metrics(const fs::path& run) {
  std::error_code error;
  const auto bytes = fs::file_size(run / kMetrics, error);
  return !error && bytes > 0;
}

/// The step of the newest checkpoint of a folder whose manifest is valid.
std::optional<int64_t> newest_step(const fs::path& checkpoints) {
  std::error_code ignored;
  std::optional<int64_t> out;
  if (!fs::is_directory(checkpoints, ignored)) return out;
  for (const CheckpointInfo& info : CheckpointStore(checkpoints).list())
    if (info.problem.empty()) out = info.step;
  return out;
}

SavedIdentity identity_of_record(const Invocation& record) {
  std::error_code ignored;
  SavedConfig texts;
  const fs::path environment = record.folder / "environment.json";
  if (fs::exists(environment, ignored)) texts.environment = read_file(environment);
  return identity_of(texts);
}

/// The identity of the invocation that saved a checkpoint; empty for an older version.
SavedIdentity identity_of_checkpoint(const fs::path& checkpoints, int64_t step) {
  const CheckpointStore store(checkpoints);
  const std::string where = store.step_folder(step).string();
  const CheckpointMeta meta = meta_from_json(store.meta(step), where);
  return meta.saved == "{}" ? SavedIdentity()
                            : identity_of(saved_config_from_json(meta.saved, where));
}

bool lies_within(const fs::path& inner, const fs::path& outer) {
  const fs::path relative = normal(inner).lexically_relative(normal(outer));
  return !relative.empty() && *relative.begin() != "..";
}

/// True when the run's history contains the invocation that saved the checkpoint. A copy of a run
/// has the same history until it is continued, so paths decide only where nothing else is known:
/// for a run without history, and for checkpoints of versions that recorded no identity.
bool is_of_run(const SavedIdentity& saved, const std::vector<Invocation>& history,
               const fs::path& run, const fs::path& checkpoints) {
  const bool here = saved.run.empty() || same_folder(saved.run, run);
  if (history.empty()) return here || lies_within(checkpoints, run);
  if (saved.invocation.empty() && here) return true;
  return std::any_of(history.begin(), history.end(), [&](const Invocation& record) {
    const SavedIdentity known = identity_of_record(record);
    return saved.invocation.empty() ? known.run == saved.run : known.invocation == saved.invocation;
  });
}

/// Refuses a start without a checkpoint in a folder that contains a run's steps.
void require_no_lost_steps(const fs::path& run, const std::vector<Invocation>& history,
                           const fs::path& checkpoints, const fs::path& recorded) {
  if (history.empty()) {
    MT_USER_CHECK(!has_metrics(run), ErrorClass::checkpoint,
                  cat(shown(run / kMetrics), " contains steps of a run, but ", shown(checkpoints),
                      " contains no checkpoint from which the run could continue"),
                  cat(kNewRun, ", or remove that file"));
    return;
  }
  const Invocation& last = history.back();
  const int64_t steps = std::max(last.first_step, last.last_step.value_or(0));
  MT_USER_CHECK(
      steps == 0, ErrorClass::checkpoint,
      cat(shown(run), " contains the record of a run of ", counted(steps, "step"), ", but ",
          shown(checkpoints), " contains no checkpoint from which the run could continue",
          same_folder(recorded, checkpoints)
              ? ""
              : cat("; its last invocation saved them in ", shown(recorded))),
      cat("restore the checkpoints; ", kNewRun));
  if (has_metrics(run))
    log_warn("the last invocation of ", shown(run),
             " ended before its first checkpoint: the run starts again from step 1");
}

}  // namespace

bool same_folder(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return normal(a) == normal(b) || fs::equivalent(a, b, ignored);
}

void require_no_run(const fs::path& run, const fs::path& checkpoints) {
  std::error_code ignored;
  auto refuse = [](const std::string& what) {
    throw Error(ErrorClass::checkpoint, cat("checkpoint.resume=never, but ", what),
                "choose another run.dir, or set checkpoint.resume=auto to continue that run");
  };
  for (const fs::path& folder : {checkpoints, run / "checkpoints"})
    if (fs::is_directory(folder, ignored))
      if (const auto all = CheckpointStore(folder).list(); !all.empty())
        refuse(cat(shown(folder), " contains the checkpoint of step ", all.back().step));
  if (!run_history(run).empty() || fs::exists(run / "config" / "resolved.yaml", ignored))
    refuse(cat(shown(run / "config"), " contains the record of a run"));
  if (has_metrics(run)) refuse(cat(shown(run / kMetrics), " contains the metrics of a run"));
}

void require_same_run(const fs::path& run, const fs::path& checkpoints,
                      std::optional<int64_t> step) {
  const std::vector<Invocation> history = run_history(run);
  const fs::path recorded = checkpoint_folder_of(run);
  if (!same_folder(recorded, checkpoints))
    if (const auto newest = newest_step(recorded); newest && (!step || *newest > *step))
      throw Error(
          ErrorClass::checkpoint,
          cat(shown(run), " continues from the checkpoints in ", shown(recorded),
              ", whose newest is of step ", *newest, "; but checkpoint.dir is now ",
              shown(checkpoints),
              step ? cat(", which contains only step ", *step) : ", which contains no checkpoint"),
          cat("to continue the run, set ", setting_word("checkpoint.dir", recorded.string()), "; ",
              kNewRun, "; to go back to an earlier step: mtrain checkpoint rewind ",
              shell_word(run.string()), " --step N"));
  if (!step) return require_no_lost_steps(run, history, checkpoints, recorded);
  const SavedIdentity saved = identity_of_checkpoint(checkpoints, *step);
  if (is_of_run(saved, history, run, checkpoints)) return;
  const bool elsewhere = !same_folder(saved.run, run);
  throw Error(
      ErrorClass::checkpoint,
      cat(shown(checkpoints), " contains the checkpoints of another run",
          elsewhere ? cat(", ", printable(saved.run)) : ", which used the same run.dir before",
          ": no invocation of ", shown(run), " saved its step ", *step),
      cat("choose another checkpoint.dir",
          elsewhere ? cat("; to continue that run: ", setting_word("run.dir", saved.run)) : "",
          "; to start with its weights: ",
          setting_word("model.init_from",
                       CheckpointStore(checkpoints).step_folder(*step).string())));
}

void require_own_checkpoints(const fs::path& run, const fs::path& checkpoints) {
  if (const auto newest = newest_step(checkpoints)) require_same_run(run, checkpoints, newest);
}

}  // namespace mtrain
