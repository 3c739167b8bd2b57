// The trainer's way to and from checkpoints.
#include <chrono>
#include <exception>
#include <new>

#include "mtrain/base/log.h"
#include "mtrain/recipe/resume.h"
#include "mtrain/train/trainer.h"

namespace mtrain {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

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

void Trainer::end_save_or_drop_it() noexcept {
  // Of several ranks some may be gone: a save that they do not agree on is given up.
  if (!save_ || ranks_.size() > 1) return;
  try {
    end_save();
  } catch (const std::exception& error) {
    log_warn("the checkpoint under way is lost: ", error.what());
  }
}

void Trainer::open_store() {
  if (mesh_.savers())
    store_.emplace(recipe_.checkpoint_directory(), store_options(recipe_.settings, mesh_));
  else
    store_.emplace(recipe_.checkpoint_directory());
}

/// A save that the system fails never stops training: the next one is tried at its time. False
/// then. `part` fails on every rank or, after its last exchange with the others, on one.
bool Trainer::try_save(int64_t step, const std::function<void()>& part) {
  try {
    part();
    return true;
  } catch (const Error& error) {
    save_.reset();
    if (error.error_class() != ErrorClass::io) throw;
    save_failure_ = error;
  } catch (const std::bad_alloc&) {
    save_.reset();
    save_failure_.emplace(ErrorClass::io, "no memory for its copy", "free some memory");
  }
  event(cat("warning: checkpoint of step ", step, " failed: ", save_failure_->what()));
  return false;
}

std::string Trainer::newest_saved() const {
  if (saved_step_ < 0) return "no checkpoint was saved";
  return cat("the newest checkpoint is of step ", saved_step_,
             ", and the same command continues from it");
}

/// A run ends well only where its last state is kept.
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
  const auto start = Clock::now();
  try_save(state_.step, [&] {
    std::exception_ptr failure;
    try {
      save_.emplace(*store_, session_.parameters, &*optimizer_state_,
                    meta(state_.consumed_samples));
    } catch (...) {
      failure = std::current_exception();
    }
    store_->agree(failure);  // a rank whose save did not begin would be missing where the others go
                             // on with theirs
  });
  save_held_ = seconds_since(start);
  if (!recipe_.settings.checkpoint.async) end_save();
}

void Trainer::poll_save() {
  bool over = false;
  if (save_) try_save(save_->step(), [&] { over = save_->poll(); });
  if (over) end_save();
}

/// Before the state changes or its memory goes.
void Trainer::finish_copy() {
  if (!save_) return;
  if (!save_->copied()) {
    LongOperation copying(ranks_.activity(), "copying the state for a checkpoint");
    const auto start = Clock::now();
    save_->wait_copied();
    save_held_ += seconds_since(start);
  }
  poll_save();  // all ranks are here: what was copied can be written from now on
}

void Trainer::end_save() {
  if (!save_) return;
  LongOperation saving(ranks_.activity(), "saving a checkpoint");
  const int64_t step = save_->step();
  const auto start = Clock::now();
  try_save(step, [&] {
    const SaveResult& result = save_->wait();
    save_held_ += seconds_since(start);
    saved_step_ = step;
    save_failure_.reset();
    auto ms = [](double seconds) { return cat(static_cast<int>(seconds * 1000), " ms"); };
    event(cat(
        "checkpoint of step ", step, ": ", human_bytes(result.bytes), " in ", ms(result.seconds),
        recipe_.settings.checkpoint.async ? cat(" (training waited ", ms(save_held_), ")") : "",
        ", ", result.path.string()));
    for (const auto& warning : result.warnings) event(cat("warning: ", warning));
  });
  save_.reset();
}

void Trainer::save_copy(const fs::path& folder) {
  if (!mesh_.savers()) return;
  CheckpointStore store(folder, store_options(recipe_.settings, mesh_));
  save_state(store, session_.parameters, &*optimizer_state_, meta(state_.consumed_samples));
}

CheckpointMeta Trainer::meta(int64_t consumed) const {
  return {.state = state_,
          .config = recipe_.config.to_yaml(),
          .name = recipe_.name,
          .directory = recipe_.directory.string(),
          .data = dataset_->identity_until(consumed),
          .order = train_source_->order(),
          .tokenizer = session_.tokenizer->identity(),
          .version = MT_VERSION,
          .saved = to_json(saved_)};
}

void Trainer::resume() {
  const std::string& mode = recipe_.settings.checkpoint.resume;
  LatestCheckpoint latest = store_->latest_valid();
  for (const auto& refused : latest.refused)
    if (first()) log_warn("checkpoint of step ", refused.step, " is refused: ", refused.reason);
  if (!latest.step) {
    MT_USER_CHECK(
        mode != "must", ErrorClass::checkpoint,
        cat("checkpoint.resume=must, but ", store_->folder().string(), " holds no checkpoint"),
        "check run.dir, or set checkpoint.resume=auto to start anew");
    return;
  }
  MT_USER_CHECK(mode != "never", ErrorClass::checkpoint,
                cat("checkpoint.resume=never, but ", store_->folder().string(),
                    " holds the checkpoint of step ", *latest.step),
                "choose another run.dir, or set checkpoint.resume=auto to continue it");
  CheckpointMeta before =
      meta_from_json(store_->meta(*latest.step), store_->step_folder(*latest.step).string());
  // Where the batches so far had other sizes than this recipe's, the run reads as many samples more
  // or fewer.
  if (const int64_t ahead =
          before.state.consumed_samples - batches_.samples_until(before.state.step);
      ahead != 0)
    open_training_data(
        batches_.samples_until(std::max(before.state.step, recipe_.settings.train.steps)) + ahead);
  const bool tells =
      first() && before.state.step < recipe_.settings.train.steps;  // else there is nothing to do
  check_resume(recipe_, session_.plugins, before, meta(before.state.consumed_samples),
               store_->step_folder(*latest.step).string(), !tells);
  const auto fresh = load_state(*store_, *latest.step, session_.parameters, &*optimizer_state_);
  if (!fresh.empty())  // of this rank's stage
    log_warn("the checkpoint has nothing for ", fresh.front(),
             fresh.size() > 1 ? cat(" and ", fresh.size() - 1, " more") : "", ": begun anew");
  state_ = before.state;
  scaler_.restore(state_.loss_scale, state_.good_steps, state_.bad_steps);
  saved_step_ = state_.step;
  if (tells)
    log_info("continuing from step ", state_.step, " of ",
             store_->step_folder(*latest.step).string());
}

}  // namespace mtrain
