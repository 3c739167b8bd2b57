// The trainer's checkpoints: saving and resuming.
#include <chrono>
#include <exception>
#include <new>

#include "mtrain/base/counted.h"
#include "mtrain/base/elapsed.h"
#include "mtrain/base/errno_hint.h"
#include "mtrain/base/log.h"
#include "mtrain/recipe/resume.h"
#include "mtrain/record/run_ties.h"
#include "mtrain/train/base_weights.h"
#include "mtrain/train/hf_run_export.h"
#include "mtrain/train/trainer.h"

namespace mtrain {
namespace {

using Clock = std::chrono::steady_clock;

StoreOptions store_options(const Settings& s, const RankMesh& mesh) {
  Communicator* savers = mesh.savers();
  StoreOptions options{.keep = static_cast<int>(s.checkpoint.keep),
                       .keep_every = s.checkpoint.retain_interval,
                       .rank = savers->rank(),
                       .world = savers->size()};
  if (options.world == 1) return options;
  options.token = mesh.token();
  options.vote = [savers](bool mine) {
    return savers->all_reduce_value<int32_t>(mine ? 1 : 0, ReduceOp::min) != 0;
  };
  return options;
}

}  // namespace

void Trainer::end_save_noexcept() noexcept {
  // With several ranks, some may have ended, so the save cannot be completed together: it is
  // cancelled.
  if (!save_ || ranks_.size() > 1) return;
  try {
    end_save();
  } catch (const std::exception& error) {
    log_warn("the checkpoint in progress is lost: ", error.what());
  }
}

void Trainer::open_store() {
  if (mesh_.savers())
    store_.emplace(recipe_.checkpoint_directory(), store_options(recipe_.settings, mesh_));
  else
    store_.emplace(recipe_.checkpoint_directory());
}

/// Runs a part of a save. An I/O failure does not stop training: it is recorded in save_failure_,
/// the next checkpoint is tried when it is due, and the result is false. `part` fails on every
/// rank, or, after its last communication with the others, on one rank only.
bool Trainer::try_save(int64_t step, const std::function<void()>& part) {
  try {
    part();
    return true;
  } catch (const Error& error) {
    save_.reset();
    if (error.error_class() != ErrorClass::io) throw;
    save_failure_ = error;
    if (error.hint() == kFullDiskHint)
      save_failure_.emplace(error.error_class(), error.message(),
                            cat(error.hint(), " (run.dir=PATH or checkpoint.dir=PATH)"));
  } catch (const std::bad_alloc&) {
    save_.reset();
    save_failure_.emplace(ErrorClass::io, "not enough host memory to copy the state",
                          "free host memory on this machine");
  }
  event(cat("warning: checkpoint of step ", step, " failed: ", save_failure_->message()));
  if (!save_failure_->hint().empty()) event(cat("  help: ", save_failure_->hint()));
  return false;
}

std::string Trainer::newest_saved() const {
  if (saved_step_ < 0) return "no checkpoint was saved";
  return cat("the newest checkpoint is of step ", saved_step_,
             ", and the same command continues from it");
}

/// A run succeeds only if its last state is saved.
void Trainer::require_saved() const {
  if (saved_step_ == state_.step || !save_failure_) return;
  throw Error(
      ErrorClass::io,
      cat("the last state of the run, of step ", state_.step,
          ", is not saved: ", save_failure_->message()),
      cat(save_failure_->hint(), save_failure_->hint().empty() ? "" : "; ", newest_saved()));
}

void Trainer::save() {
  LongOperation saving(ranks_.activity(), "saving a checkpoint");
  end_save();
  if (!mesh_.savers()) {
    saved_step_ = state_.step;
    return;
  }
  keep_best_steps();
  const auto start = Clock::now();
  try_save(state_.step, [&] {
    std::exception_ptr failure;
    try {
      save_.emplace(*store_, session_.parameters, optimizer_state(), meta(state_.consumed_samples));
    } catch (...) {
      failure = std::current_exception();
    }
    store_->agree(failure);  // if the save could not start on one rank, it fails on all ranks,
                             // which otherwise would wait for that rank
  });
  save_blocked_seconds_ = seconds_since(start);
  if (!recipe_.settings.checkpoint.async) end_save();
}

void Trainer::poll_save() {
  bool over = false;
  if (save_) try_save(save_->step(), [&] { over = save_->poll(); });
  if (over) end_save();
}

/// Must be called before the state changes or its memory is freed.
void Trainer::finish_copy() {
  if (!save_) return;
  if (!save_->copied()) {
    LongOperation copying(ranks_.activity(), "copying the state for a checkpoint");
    const auto start = Clock::now();
    save_->wait_copied();
    save_blocked_seconds_ += seconds_since(start);
  }
  poll_save();  // every rank calls this at the same point, so the save can advance to writing
}

void Trainer::end_save() {
  if (!save_) return;
  LongOperation saving(ranks_.activity(), "saving a checkpoint");
  const int64_t step = save_->step();
  const auto start = Clock::now();
  bool written = false;
  try_save(step, [&] {
    const SaveResult& result = save_->wait();
    written = !result.already_saved;
    save_blocked_seconds_ += seconds_since(start);
    saved_step_ = step;
    save_failure_.reset();
    note_saved(step);
    auto ms = [](double seconds) { return cat(static_cast<int>(seconds * 1000), " ms"); };
    event(cat("checkpoint of step ", step, ": ", human_bytes(result.bytes), " in ",
              ms(result.seconds),
              recipe_.settings.checkpoint.async
                  ? cat(" (training waited ", ms(save_blocked_seconds_), ")")
                  : "",
              ", ", result.path.string()));
    for (const auto& warning : result.warnings) event(cat("warning: ", warning));
  });
  save_.reset();
  if (saved_step_ == step) export_hf(step, written);
}

/// Writes the checkpoint's weights as a Hugging Face folder. Training continues without it if that
/// fails: the checkpoint has the weights. The ranks that save checkpoints write it together.
void Trainer::export_hf(int64_t step, bool saved) {
  const CheckpointSection& section = recipe_.settings.checkpoint;
  if (section.hf.empty() || !mesh_.savers()) return;
  const HfTeam team(*mesh_.savers());
  const fs::path to = fs::path(section.hf) / cat("step-", step);
  LongOperation exporting(ranks_.activity(), "exporting the weights");
  try {
    bool needed = false;
    team.together([&] {
      if (!team.first()) return;
      std::error_code error;
      const bool there = fs::exists(to, error);
      needed = saved || !there;
      if (!there || !saved) return;
      for (const fs::path& aside : set_aside_hf_exports(section.hf, {step}))
        event(cat(to.string(), " was of other weights and is now ", aside.string()));
    });
    if (!team.of_each(needed)[0]) return;
    const HfRunOptions options{.shard_bytes = *hf_shard_bytes(section.hf_shard_size),
                               .chat_template = dataset_->chat_template()};
    const HfRunExported done = export_hf_run(
        recipe_, session_.plugins, CheckpointStore(store_->folder()), step, to, options, team);
    event(cat("weights of step ", step, ": ", to.string(), ", ", done.family, " in ",
              name(done.dtype), ", ", counted(done.weights.files, "file"),
              done.weights.ranks > 1 ? cat(" by ", done.weights.ranks, " ranks") : ""));
  } catch (const Error& fault) {
    if (fault.error_class() == ErrorClass::peer) throw;  // the job has failed
    event(cat("warning: the weights of step ", step, " are not exported: ", fault.message()));
  }
}

void Trainer::save_copy(const fs::path& folder) {
  if (!mesh_.savers()) return;
  CheckpointStore store(folder, store_options(recipe_.settings, mesh_));
  save_state(store, session_.parameters, optimizer_state(), meta(state_.consumed_samples));
}

CheckpointMeta Trainer::meta(int64_t consumed) const {
  return {.state = state_,
          .config = recipe_.config.to_yaml(),
          .name = recipe_.name,
          .directory = recipe_.directory.string(),
          .data = dataset_->identity_until(consumed),
          .order = train_source_->order(),
          .tokenizer = session_.tokenizer->identity(),
          .base = base_,
          .reference = answers_ ? name(answers_->source()) : teacher_identity_,
          .version = MT_VERSION,
          .saved = to_json(saved_)};
}

void Trainer::resume() {
  const std::string& mode = recipe_.settings.checkpoint.resume;
  // Only the first rank writes to these folders; on other machines, run.dir may be another one.
  if (first() && mode == "never") require_no_run(recipe_.run_directory(), store_->folder());
  LatestCheckpoint latest = store_->latest_valid();
  for (const auto& refused : latest.refused)
    if (first()) log_warn("checkpoint of step ", refused.step, " is refused: ", refused.reason);
  if (!latest.step) {
    MT_USER_CHECK(
        mode != "must", ErrorClass::checkpoint,
        cat("checkpoint.resume=must, but ", store_->folder().string(), " holds no checkpoint"),
        "check run.dir, or set checkpoint.resume=auto to start a new run");
    if (first()) require_same_run(recipe_.run_directory(), store_->folder(), {});
    return;
  }
  MT_USER_CHECK(mode != "never", ErrorClass::checkpoint,
                cat("checkpoint.resume=never, but ", store_->folder().string(),
                    " holds the checkpoint of step ", *latest.step),
                "choose another run.dir, or set checkpoint.resume=auto to continue it");
  if (first()) require_same_run(recipe_.run_directory(), store_->folder(), latest.step);
  CheckpointMeta before =
      meta_from_json(store_->meta(*latest.step), store_->step_folder(*latest.step).string());
  // If the steps so far used other batch sizes than this recipe's, the total number of samples of
  // the run differs by the same amount.
  if (const int64_t ahead =
          before.state.consumed_samples - batches_.samples_until(before.state.step);
      ahead != 0)
    open_training_data(
        batches_.samples_until(std::max(before.state.step, recipe_.settings.train.steps)) + ahead);
  const bool report =
      first() &&
      before.state.step <
          recipe_.settings.train.steps;  // otherwise no step is left and nothing is reported
  check_resume(recipe_, session_.plugins, before, meta(before.state.consumed_samples),
               store_->step_folder(*latest.step).string(), session_.tokenizer->vocab_size(),
               !report);
  require_base(recipe_, before.base, store_->step_folder(*latest.step).string());
  require_teacher(before.reference, store_->step_folder(*latest.step).string());
  const auto fresh = load_state(*store_, *latest.step, session_.parameters, optimizer_state());
  if (!fresh.empty())  // buffers of this rank's stage
    log_warn("the checkpoint does not contain ", fresh.front(),
             fresh.size() > 1 ? cat(" and ", fresh.size() - 1, " more") : "",
             ": initialized instead");
  state_ = before.state;
  if (before.saved != "{}")
    set_weights(saved_, identity_of(saved_config_from_json(before.saved, "")).weights);
  if (answers_) answers_->continue_with(before.reference);
  scaler_.restore(state_.loss_scale, state_.good_steps, state_.bad_steps);
  saved_step_ = state_.step;
  if (report)
    log_info("continuing from step ", state_.step, " of ",
             store_->step_folder(*latest.step).string());
  const ProfilingSection& profiling = recipe_.settings.profiling;
  if (report && profiling.type == "trace" && state_.step >= profiling.end)
    log_warn("no trace is written: profiling.end is ", profiling.end,
             ", and the run continues from step ", state_.step);
}

}  // namespace mtrain
