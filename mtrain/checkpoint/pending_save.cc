#include "mtrain/checkpoint/pending_save.h"

#include <new>
#include <system_error>

#include "mtrain/base/elapsed.h"
#include "mtrain/base/error.h"

namespace mtrain {
namespace {

Error as_error(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ErrorClass::io, "not enough memory to save a checkpoint",
            "free some host memory; the next checkpoint is tried when it is due"};
  } catch (const std::exception& error) {
    return {ErrorClass::io, cat("cannot save a checkpoint: ", error.what())};
  } catch (...) {
    return {ErrorClass::io,
            "cannot save a checkpoint: an exception was thrown that is not a std::exception"};
  }
}

/// Allocates no memory, since a rank that is out of memory must still take part in the votes.
ErrorClass class_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.error_class();
  } catch (...) {
    return ErrorClass::io;
  }
}

/// The priority of an error class when ranks fail differently. A run continues after io errors, so
/// every other class has priority. The values are exit statuses, so they are below 256.
int weight(ErrorClass one) { return one == ErrorClass::io ? 0 : static_cast<int>(one); }

}  // namespace

PendingSave::State::State(CheckpointStore& owner, int64_t of_step,
                          std::function<std::vector<Slice>()> make, std::string_view text,
                          bool in_background)
    : store(owner),
      step(of_step),
      source(std::move(make)),
      background(in_background),
      temporary(owner.folder_ /
                cat("step-", of_step, ".tmp-", owner.options_.token, "-", owner.serial_)),
      meta(text),
      result{.path = owner.step_folder(of_step)} {}

PendingSave::State::~State() {
  cancelled = true;
  if (worker.joinable()) worker.join();
}

void PendingSave::State::begin(Part next_part, void (State::*work)()) {
  part = next_part;
  auto all = [this, work] {
    try {
      (this->*work)();
    } catch (...) {
      failure = std::current_exception();
    }
    finished = true;
  };
  finished = false;
  if (!background) return all();
  try {
    worker = std::thread(all);
  } catch (const std::exception&) {
    all();  // no thread could be started: run the stage on the calling thread
  }
}

bool PendingSave::State::all_through() const { return store.vote(finished); }

void PendingSave::State::agree() {
  if (worker.joinable()) worker.join();
  ++store.serial_;
  if (store.vote(!failure)) return;
  part = Part::over;
  try {
    std::error_code ignored;
    if (store.options_.rank == 0) fs::remove_all(temporary, ignored);
  } catch (const std::bad_alloc&) {  // the folder is removed at the next start
  }
  store.agree(failure);
}

/// All ranks must throw the same class, so that the run continues or ends on all of them.
void CheckpointStore::agree(const std::exception_ptr& failure) {
  ++serial_;
  if (vote(!failure)) return;
  const int own = failure ? weight(class_of(failure)) : 0;
  int most = 0;  // maximum over all ranks, found bit by bit from the highest
  for (int bit = 128; bit > 0; bit /= 2)
    if (!vote(own < most + bit)) most += bit;
  const ErrorClass worst = most == 0 ? ErrorClass::io : static_cast<ErrorClass>(most);
  if (!failure)
    throw Error(worst, "another rank could not save its part of the checkpoint",
                "see the error message of that rank");
  const Error error = as_error(failure);
  throw Error(worst, error.message(), error.hint());
}

/// Advances from a stage that every rank has finished to the next one; true if it was the last.
bool PendingSave::State::next() {
  agree();
  if (part == Part::preparing) {
    result.already_saved = store.vote(same);
    if (!result.already_saved) {
      begin(Part::writing, &State::write);
      return false;
    }
  } else if (part == Part::writing) {
    begin(Part::committing, &State::commit);
    return false;
  }
  part = Part::over;
  result.seconds = seconds_since(start);
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

const SaveResult& PendingSave::wait() {
  while (state_->part != State::Part::over) state_->next();
  return state_->result;
}

PendingSave CheckpointStore::begin_save(int64_t step, std::function<std::vector<Slice>()> slices,
                                        std::string_view meta, bool background) {
  MT_CHECK(writable_ && step >= 0, "step ", step);
  auto state =
      std::make_unique<PendingSave::State>(*this, step, std::move(slices), meta, background);
  state->begin(PendingSave::State::Part::preparing, &PendingSave::State::prepare);
  return PendingSave(std::move(state));
}

PendingSave CheckpointStore::start_save(int64_t step, std::vector<Slice> slices,
                                        std::string_view meta) {
  return start_save(
      step, [given = std::move(slices)] { return given; }, meta);
}

PendingSave CheckpointStore::start_save(int64_t step, std::function<std::vector<Slice>()> slices,
                                        std::string_view meta) {
  return begin_save(step, std::move(slices), meta, true);
}

SaveResult CheckpointStore::save(int64_t step, std::span<const Slice> slices,
                                 std::string_view meta) {
  return begin_save(
             step, [slices] { return std::vector<Slice>(slices.begin(), slices.end()); }, meta,
             false)
      .wait();
}

}  // namespace mtrain
