#include "mtrain/message_comm/job.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <thread>

#include "mtrain/base/log.h"
#include "mtrain/message_comm/started_call.h"

namespace mtrain::message_comm {

namespace {
constexpr int kNoticeTag = 0, kPartTag = 1, kHostTag = 2, kEndpointTag = 3, kReadyTag = 4,
              kGoTag = 5, kEndTag = 6;
constexpr size_t kHostBytes = 64, kEndpointBytes = 512;
using Clock = std::chrono::steady_clock;
// The time that the processes of a failed job have to report.
constexpr auto kGrace = std::chrono::seconds(2);
// The interval at which a starting rank checks whether another one has ended.
constexpr auto kLook = std::chrono::milliseconds(20);

/// Text that another process wrote, which may lack a terminating zero.
std::string text_in(std::span<const char> memory) {
  return {memory.data(), strnlen(memory.data(), memory.size())};
}

bool done_within(Batch& batch, Clock::duration limit) {
  for (auto begin = Clock::now(); !batch.done();) {
    if (Clock::now() - begin > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}
}  // namespace

// Small enough for any MPI to send before its receive is started.
struct Job::Notice {
  int32_t rank = -1, error_class = 0;
  char reason[2000] = "";
};

Job::Job(std::unique_ptr<Transport> transport, const CommContext& context)
    : context_(context), transport_(std::move(transport)), control_(transport_->world()) {
  seen_.resize(static_cast<size_t>(size()));
  incoming_ = std::make_unique<Notice>();
  listen();
  if (context_.watch.silence.count() > 0 && size() > 1) start_watch();
}

/// The name of every rank's machine.
std::vector<std::string> Job::gather_hosts() {
  auto n = static_cast<size_t>(size());
  std::vector<char> all(n * kHostBytes, '\0');
  char* mine = all.data() + static_cast<size_t>(rank()) * kHostBytes;
  gethostname(mine, kHostBytes - 1);
  Batch batch;
  if (rank() == 0)
    for (size_t r = 1; r < n; ++r)
      batch.recv(*control_, all.data() + r * kHostBytes, kHostBytes, static_cast<int>(r), kHostTag);
  else
    batch.send(*control_, mine, kHostBytes, 0, kHostTag);
  finish(batch, "their machines' names");
  if (rank() == 0)
    for (size_t r = 1; r < n; ++r)
      batch.send(*control_, all.data(), all.size(), static_cast<int>(r), kHostTag);
  else
    batch.recv(*control_, all.data(), all.size(), 0, kHostTag);
  finish(batch, "their machines' names");
  std::vector<std::string> hosts;
  for (size_t r = 0; r < n; ++r)
    hosts.push_back(text_in(std::span(all).subspan(r * kHostBytes, kHostBytes)));
  return hosts;
}

/// Either all ranks are watched or none, because an unreachable rank would look dead.
void Job::start_watch() {
  watch_ = std::make_unique<JobWatch>(rank(), gather_hosts(), context_);
  std::vector<char> endpoint(kEndpointBytes, '\0');
  Batch batch;
  if (rank() == 0) {
    std::string text = watch_->open_endpoint();
    MT_CHECK(text.size() < kEndpointBytes, text);
    std::memcpy(endpoint.data(), text.data(), text.size());
    for (int r = 1; r < size(); ++r)
      batch.send(*control_, endpoint.data(), endpoint.size(), r, kEndpointTag);
  } else {
    batch.recv(*control_, endpoint.data(), endpoint.size(), 0, kEndpointTag);
  }
  finish(batch, "the first rank's address");
  std::string reason;
  char ready = rank() == 0 || watch_->connect(text_in(endpoint), reason) ? 1 : 0;
  if (ready == 0)
    log_warn("rank ", rank(), " cannot reach rank 0 over TCP (", reason,
             "): ranks that die or stop are detected only after dist.timeout_minutes");
  std::vector<char> all(static_cast<size_t>(size()), 1);
  if (rank() == 0)
    for (int r = 1; r < size(); ++r)
      batch.recv(*control_, &all[static_cast<size_t>(r)], 1, r, kReadyTag);
  else
    batch.send(*control_, &ready, 1, 0, kReadyTag);
  finish(batch, "whether they are connected");
  char go = *std::min_element(all.begin(), all.end());
  if (rank() == 0)
    for (int r = 1; r < size(); ++r) batch.send(*control_, &go, 1, r, kGoTag);
  else
    batch.recv(*control_, &go, 1, 0, kGoTag);
  finish(batch, "whether all are connected");
  if (go != 0)
    watch_->begin();
  else
    watch_.reset();
}

// The watch has not started yet, so the transport is asked whether a rank has ended.
void Job::finish(Batch& batch, const char* what) {
  auto limit = context_.timeout.count() > 0 ? Clock::duration(context_.timeout)
                                            : Clock::duration(std::chrono::hours(24));
  for (auto begin = Clock::now(); !done_within(batch, kLook);) {
    std::vector<int> gone = batch.peers_gone();
    MT_USER_CHECK(
        gone.empty(), ErrorClass::peer,
        cat("rank ", gone[0], " disconnected while the ranks started, before all had sent ", what),
        "see the output of that rank and its machine's log");
    MT_USER_CHECK(Clock::now() - begin < limit, ErrorClass::peer,
                  cat("rank ", rank(), " timed out while waiting for the others to send ", what),
                  "see what the other ranks reported");
  }
  batch = Batch();
}

void Job::listen() {
  listening_.recv(*control_, incoming_.get(), sizeof(Notice), Channel::kAnyRank, kNoticeTag);
}

Job::~Job() {
  if (watch_) watch_->activity().end();
  bool well = close();
  if (watch_ && well) watch_->end();
  if (!well) {
    // A rank that was found dead or stuck will not report anything.
    if (failure_->detected_by_watcher) transport_->abort(static_cast<int>(failure_class_));
    part();
  }
  listening_.cancel();
}

// Waits until all ranks have reached their end, which each reports to all others: no rank destroys
// its transport while another one may still have to end the job (mpirun may crash if a rank is in
// MPI_Finalize at that moment). False if the job failed.
bool Job::close() noexcept {
  try {
    auto words = std::make_unique<std::byte[]>(static_cast<size_t>(size()));
    Batch batch;
    std::byte* mine = words.get() + rank();
    *mine = std::byte{0};
    bool start = !failed();
    for (int r = 0; start && r < size(); ++r)
      if (r != rank()) batch.recv(*control_, words.get() + r, 1, r, kEndTag);
    for (int r = 0; start && r < size(); ++r)
      if (r != rank()) batch.send(*control_, mine, 1, r, kEndTag);
    while (!failed() && !batch.done()) std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (!failure_) return true;
    batch.cancel();
    keep(std::move(batch), std::move(words));
  } catch (const std::exception& e) {
    if (!failure_) failure_ = CommFailure{rank(), e.what()};
  }
  return false;
}

void Job::part() noexcept {
  try {
    // The rank that failed sets the exit status: the others wait for it to end them.
    int leader = std::max(failure_->rank, 0);
    Batch batch;
    char word = 0;
    std::vector<char> words(static_cast<size_t>(size()));
    if (rank() == leader) {
      for (int r = 0; r < size(); ++r)
        if (r != leader) batch.recv(*control_, &words[static_cast<size_t>(r)], 1, r, kPartTag);
      done_within(batch, kGrace);
    } else {
      batch.send(*control_, &word, 1, leader, kPartTag);
      done_within(batch, kGrace);
      Batch never;  // a transport may notice the end of the job only while it is polled
      never.recv(*control_, &word, 1, leader, kPartTag);
      done_within(never, 5 * kGrace);
    }
  } catch (const std::exception&) {
    // The transport itself is broken, so the process can only end.
  }
  transport_->abort(static_cast<int>(failure_class_));
}

void Job::remove(StartedCall& call) { std::erase(active_, &call); }

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
    if (watch_) watch_->report_failure(failure_->reason, error_class);
    auto memory = std::make_unique<std::byte[]>(sizeof(Notice));
    auto* notice = new (memory.get()) Notice;
    notice->rank = failure_->rank;
    notice->error_class = static_cast<int32_t>(error_class);
    size_t length = std::min(failure_->reason.size(), sizeof(notice->reason) - 1);
    std::memcpy(notice->reason, failure_->reason.data(), length);
    notice->reason[length] = '\0';
    Batch batch;
    for (int r = 0; r < size(); ++r)
      if (r != rank()) batch.send(*control_, notice, sizeof(Notice), r, kNoticeTag);
    done_within(batch, kGrace);
    keep(std::move(batch), std::move(memory));
  } catch (const std::exception& e) {
    // The others notice when this process ends.
    if (!failure_) failure_ = CommFailure{rank(), e.what()};
  }
}

bool Job::failed() {
  if (failure_) return true;
  if (watch_ && watch_->failed()) {
    failure_ = watch_->failure();
    failure_class_ = ErrorClass::peer;
    return true;
  }
  if (!listening_.done()) return false;
  failure_ = CommFailure{incoming_->rank, text_in(incoming_->reason)};
  failure_class_ = ErrorClass::peer;
  return true;
}

void Job::saw(int world_rank, CommKind kind, uint64_t number, const std::string& group) {
  seen_[static_cast<size_t>(world_rank)] = {true, kind, number, group};
}

std::string Job::last_seen(int world_rank) const {
  const Sighting& s = seen_[static_cast<size_t>(world_rank)];
  return s.any ? cat("last reached ", name(s.kind), " #", s.number, " of group '", s.group, "'")
               : std::string("has never reported");
}

void Job::keep(Batch batch, std::unique_ptr<std::byte[]> memory) {
  kept_.emplace_back(std::move(memory), std::move(batch));
}

}  // namespace mtrain::message_comm
