#include "job.h"

#include <sched.h>

#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/comm/failure.h"

namespace mtrain::nccl {

namespace {
using Clock = std::chrono::steady_clock;
constexpr auto kLook = std::chrono::milliseconds(20);
constexpr auto kGrace = std::chrono::seconds(5);

void idle(int64_t looks) {
  if (looks < 5000)
    sched_yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}
}  // namespace

Job::Job(const Library& library, std::unique_ptr<DeviceCalls> device,
         std::shared_ptr<Communicator> world, std::chrono::milliseconds timeout)
    : library_(library),
      device_(std::move(device)),
      events_(*device_),
      world_(std::move(world)),
      timeout_(timeout) {
  thread_ = std::thread([this] { look_after(); });
}

Job::~Job() {
  auto begin = Clock::now();
  auto left = [&] { return Clock::now() - begin < kGrace; };
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kGrace, [this] { return ended_ || watched_.empty(); });
    closing_ = true;
    changed_.notify_all();
  }
  thread_.join();
  std::lock_guard lock(mutex_);
  if (!ended_ && watched_.empty()) {
    for (auto& lane : lanes_) lane->begin_end();
    for (auto& lane : lanes_)
      while (!lane->ended() && left()) idle(5000);
  }
  for (auto& lane : lanes_) lane->abort();
  watched_.clear();
  lanes_.clear();  // before the events that they own
}

Lane& Job::add(std::unique_ptr<Lane> lane) {
  std::lock_guard lock(mutex_);
  device_index_ = lane->device();
  return *lanes_.emplace_back(std::move(lane));
}

void Job::progress() {
  for (auto& lane : lanes_)
    if (!lane->idle()) lane->advance();
}

void Job::await_issue(const Op& op, Communicator& group) {
  auto begin = Clock::now();
  for (int64_t looks = 0; !op.issued; ++looks) {
    try {
      progress();
    } catch (const Error&) {
      require_alive(group, op.call);  // report the original failure if there is one
      throw;
    }
    if (op.issued) return;
    idle(looks);
    if (looks % 64 != 63) continue;
    require_alive(group, op.call);
    auto waited = Clock::now() - begin;
    if (timeout_.count() == 0 || waited < timeout_) continue;
    std::string text = cat("rank ", world_rank(), " waited ",
                           human_seconds(std::chrono::duration<double>(waited).count()), " in ",
                           op.place, " for NCCL to connect its ranks");
    fail(text, ErrorClass::peer);
    throw Error(
        ErrorClass::peer, text,
        "see what the other ranks were doing; with NCCL_DEBUG=INFO NCCL reports on the network");
  }
}

void Job::require_sound() const {
  if (ended_)
    throw Error(ErrorClass::peer, failure_ ? *failure_ : std::string("the job has failed"), "");
}

void Job::check(ncclResult_t result, ncclComm_t comm, const std::string& what) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw Error(
      ErrorClass::peer,
      cat("rank ", world_rank(), ": NCCL failed in ", what, ": ", explain(library_, result, comm)),
      "see what the other ranks reported; with NCCL_DEBUG=INFO NCCL reports more");
}

void Job::watch(const Lane& lane, const std::string& place, Event finished) {
  std::lock_guard lock(mutex_);
  watched_.push_back({&lane, place, std::move(finished), Clock::now()});
  changed_.notify_all();
}

void Job::require_alive(Communicator& group, const CommCall& call) {
  std::optional<std::string> found;
  {
    std::lock_guard lock(mutex_);
    found = failure_;
  }
  if (found && !std::exchange(reported_, true)) {
    world_->abort(*found);
    throw Error(ErrorClass::peer, *found,
                "see what the other ranks reported; with NCCL_DEBUG=INFO NCCL reports more");
  }
  try {
    group.require_alive_for(call);
  } catch (...) {
    std::lock_guard lock(mutex_);
    end_nccl();
    throw;
  }
}

void Job::fail(const std::string& reason, ErrorClass error_class) noexcept {
  reported_ = true;
  world_->abort(reason, error_class);
  std::lock_guard lock(mutex_);
  end_nccl();
}

// With the lock held.
void Job::end_nccl() noexcept {
  if (std::exchange(ended_, true)) return;
  for (auto& lane : lanes_) lane->abort();
  changed_.notify_all();
}

// With the lock held. Issued calls complete in the order of their lane; returns a text for a
// failure.
std::string Job::look() {
  for (auto w = watched_.begin(); w != watched_.end();) {
    if (device_->done(w->finished.get())) {
      w = watched_.erase(w);
      continue;
    }
    ncclResult_t state = ncclSuccess;
    if (ncclComm_t comm = w->lane->comm();
        comm && library_.async_error(comm, &state) == ncclSuccess)
      check(state, comm, w->place);
    auto waited = Clock::now() - w->since;
    if (timeout_.count() > 0 && waited > timeout_)
      return cat("rank ", world_rank(), " waited ",
                 human_seconds(std::chrono::duration<double>(waited).count()), " in ", w->place,
                 " for its other ranks or its own GPU");
    ++w;
  }
  return {};
}

void Job::look_after() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    changed_.wait_for(lock, watched_.empty() ? std::chrono::milliseconds(1000) : kLook);
    if (ended_ || watched_.empty()) {
      changed_.notify_all();
      if (closing_) return;
      if (ended_) changed_.wait(lock, [this] { return closing_; });
      continue;
    }
    std::string found;
    try {
      device_->use(device_index_);  // otherwise a thread's first call opens the first device
      found = look();
    } catch (const Error& error) {
      found = error.message();
    }
    if (!found.empty()) {
      failure_ = found;
      end_nccl();
    }
    if (watched_.empty()) changed_.notify_all();
  }
}

}  // namespace mtrain::nccl
