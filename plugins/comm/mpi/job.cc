#include "job.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "work.h"

namespace mtrain::mpi {

namespace {
constexpr int kNoticeTag = 0, kPartTag = 1;
using Clock = std::chrono::steady_clock;
// How long a failed job's processes are given to say what they have to say.
constexpr auto kGrace = std::chrono::seconds(2);

bool done_within(Batch& batch, Clock::duration limit) {
  for (auto begin = Clock::now(); !batch.done();) {
    if (Clock::now() - begin > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}
}  // namespace

// Small enough for any MPI to send without the receiver's help.
struct Job::Notice {
  int32_t rank = -1, error_class = 0;
  char reason[2000] = "";
};

Job::Job(const CommContext& context) : context_(context), control_(process_.world()) {
  seen_.resize(static_cast<size_t>(size()));
  incoming_ = std::make_unique<Notice>();
  listen();
}

void Job::listen() {
  control_.recv(incoming_.get(), sizeof(Notice), -1, kNoticeTag, listening_);
}

Job::~Job() {
  if (!close()) {
    process_.leave();
    part();
  }
  listening_.cancel();
}

// Waits for all ranks to come to their end, so that none is in MPI_Finalize when another one has to end the
// job: mpirun may crash of that. False when the job failed.
bool Job::close() noexcept {
  try {
    Batch all;
    if (!failed()) control_.barrier(all);
    while (!failed() && !all.done()) std::this_thread::sleep_for(std::chrono::microseconds(100));
    return !failure_;
  } catch (const std::exception& e) {
    if (!failure_) failure_ = CommFailure{rank(), e.what()};
    return false;
  }
}

void Job::part() noexcept {
  try {
    // The one that failed has the say in the exit status: the others wait for it to end them.
    int leader = std::max(failure_->rank, 0);
    Batch batch;
    char word = 0;
    std::vector<char> words(static_cast<size_t>(size()));
    if (rank() == leader) {
      for (int r = 0; r < size(); ++r)
        if (r != leader) control_.recv(&words[static_cast<size_t>(r)], 1, r, kPartTag, batch);
      done_within(batch, kGrace);
    } else {
      control_.send(&word, 1, leader, kPartTag, batch);
      done_within(batch, kGrace);
      std::this_thread::sleep_for(5 * kGrace);
    }
  } catch (const std::exception&) {
    // MPI itself is broken; what is left is to end.
  }
  process_.abort(static_cast<int>(failure_class_));
}

void Job::remove(Work& work) {
  std::erase(active_, &work);
}

void Job::progress() {
  for (size_t i = 0; i < active_.size() && !failure_;) {
    if (active_[i]->advance())
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
  }
}

void Job::fail(CommFailure failure, ErrorClass error_class) noexcept {
  try {
    if (failed()) return;
    failure_ = std::move(failure);
    failure_class_ = error_class;
    auto memory = std::make_unique<std::byte[]>(sizeof(Notice));
    auto* notice = new (memory.get()) Notice;
    notice->rank = failure_->rank;
    notice->error_class = static_cast<int32_t>(error_class);
    size_t length = std::min(failure_->reason.size(), sizeof(notice->reason) - 1);
    std::memcpy(notice->reason, failure_->reason.data(), length);
    notice->reason[length] = '\0';
    Batch batch;
    for (int r = 0; r < size(); ++r)
      if (r != rank()) control_.send(notice, sizeof(Notice), r, kNoticeTag, batch);
    done_within(batch, kGrace);
    keep(std::move(batch), std::move(memory));
  } catch (const std::exception& e) {
    // The others will learn of it when this process ends.
    if (!failure_) failure_ = CommFailure{rank(), e.what()};
  }
}

bool Job::failed() {
  if (failure_) return true;
  if (!listening_.done()) return false;
  failure_ = CommFailure{incoming_->rank, incoming_->reason};
  failure_class_ = ErrorClass::peer;
  return true;
}

void Job::saw(int world_rank, CommKind kind, uint64_t number, const std::string& group) {
  seen_[static_cast<size_t>(world_rank)] = {true, kind, number, group};
}

std::string Job::last_seen(int world_rank) const {
  const Sighting& s = seen_[static_cast<size_t>(world_rank)];
  return s.any ? cat("came to ", name(s.kind), " #", s.number, " of group '", s.group, "' last")
               : std::string("was never heard of");
}

void Job::keep(Batch batch, std::unique_ptr<std::byte[]> memory) {
  kept_.emplace_back(std::move(batch), std::move(memory));
}

}  // namespace mtrain::mpi
