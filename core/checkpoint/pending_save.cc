#include "mtrain/checkpoint/pending_save.h"

#include <new>

#include "mtrain/base/error.h"

namespace mtrain {

PendingSave::State::State(CheckpointStore& owner, int64_t of_step, std::vector<Slice> all, bool beside)
    : store(owner),
      step(of_step),
      slices(std::move(all)),
      background(beside),
      temporary(owner.folder_ / cat("step-", of_step, ".tmp-", owner.options_.token, "-", ++owner.serial_)),
      result{.path = owner.step_folder(of_step)} {}

PendingSave::State::~State() {
  given_up = true;
  if (worker.joinable()) worker.join();
}

void PendingSave::State::begin(void (State::*part)()) {
  auto work = [this, part] {
    try {
      (this->*part)();
    } catch (...) {
      failure = std::current_exception();
    }
    finished = true;
  };
  finished = false;
  if (background) worker = std::thread(work);
  else work();
}

bool PendingSave::State::all_through() const { return store.vote(finished); }

void PendingSave::State::agree() {
  if (worker.joinable()) worker.join();
  if (store.vote(!failure)) return;
  part = Part::over;
  std::error_code ignored;
  if (store.options_.rank == 0) fs::remove_all(temporary, ignored);
  if (!failure)
    throw Error(ErrorClass::io, "another rank could not save its part of the checkpoint", "see that rank's message");
  try {
    std::rethrow_exception(failure);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw Error(ErrorClass::io, "not enough memory to save a checkpoint", "free some memory; the next save is tried again");
  } catch (const std::exception& error) {
    throw Error(ErrorClass::io, cat("cannot save a checkpoint: ", error.what()));
  }
}

/// From a part that every rank is through with to the next; true when there is none.
bool PendingSave::State::next() {
  agree();
  if (part == Part::writing) {
    part = Part::committing;
    begin(&State::commit);
    return false;
  }
  part = Part::over;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return true;
}

PendingSave::PendingSave(std::unique_ptr<State> state) : state_(std::move(state)) {}
PendingSave::PendingSave(PendingSave&&) noexcept = default;
PendingSave::~PendingSave() = default;
const SaveResult& PendingSave::result() const { return state_->result; }

bool PendingSave::poll() {
  if (state_->part == State::Part::over) return true;
  return state_->all_through() && state_->next();
}

SaveResult PendingSave::wait() {
  while (state_->part != State::Part::over) state_->next();
  return state_->result;
}

PendingSave CheckpointStore::begin_save(int64_t step, std::vector<Slice> slices, std::string_view meta, bool background) {
  MT_CHECK(writable_ && step >= 0, "step ", step);
  auto state = std::make_unique<PendingSave::State>(*this, step, std::move(slices), background);
  try {
    state->look(meta);
  } catch (...) {
    state->failure = std::current_exception();
  }
  state->agree();
  if (vote(state->same)) {
    state->result.already_saved = true;
    state->part = PendingSave::State::Part::over;
  } else {
    state->part = PendingSave::State::Part::writing;
    state->begin(&PendingSave::State::write);
  }
  return PendingSave(std::move(state));
}

PendingSave CheckpointStore::start_save(int64_t step, std::vector<Slice> slices, std::string_view meta) {
  return begin_save(step, std::move(slices), meta, true);
}

SaveResult CheckpointStore::save(int64_t step, std::span<const Slice> slices, std::string_view meta) {
  return begin_save(step, {slices.begin(), slices.end()}, meta, false).wait();
}

}  // namespace mtrain
