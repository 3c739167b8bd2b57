#include "mtrain/comm/job_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "mtrain/base/log.h"
#include "mtrain/base/text.h"
#include "mtrain/comm/job_judge.h"
#include "mtrain/comm/watch_message.h"
#include "mtrain/comm/watch_socket.h"

namespace mtrain {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

enum MessageType : uint32_t { kHello = 1, kStatus, kTable, kAsk, kFound, kFailed };

// The interval at which the first rank receives every rank's status; longer for more ranks than
// kManyRanks.
constexpr milliseconds kBeat{50}, kSlowBeat{200}, kTableBeat{250};
constexpr int kManyRanks = 64;
constexpr double kTableBytesPerSecond = 20e6;  // sent by the first rank, for any number of ranks
constexpr milliseconds kToFlush{200};
// Limits on unidentified connections: their time and their number. A rank identifies itself when it
// connects.
constexpr milliseconds kToSayHello{5000};
constexpr size_t kMostStrangers = 64;
constexpr int kMostReported = 10;  // dropped connections that are logged separately

}  // namespace

/// State of the watching thread.
class JobWatch::Watcher {
 public:
  explicit Watcher(JobWatch& job)
      : job_(job),
        judge_(num_ranks(), {job.context_.watch.silence, job.context_.timeout}, true, Clock::now()),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    for (int r = 0; r < num_ranks(); ++r) judge_.set_host(r, job_.hosts_[static_cast<size_t>(r)]);
  }
  ~Watcher() { ::close(wake_); }

  void open_endpoint() {
    bool one_machine = std::all_of(job_.hosts_.begin(), job_.hosts_.end(),
                                   [this](const auto& h) { return h == job_.hosts_[0]; });
    listener_.emplace(one_machine);
    came_.assign(job_.hosts_.size(), false);
    came_[0] = true;
  }
  std::string endpoint() const { return listener_->endpoint().text(); }

  bool connect(const std::string& text, std::string& reason) {
    auto endpoint = WatchEndpoint::parse(text);
    if (!endpoint) {
      reason = "the first rank did not report the address at which it listens";
      return false;
    }
    WatchSocket socket = connect_to(*endpoint, reason);
    if (!socket.open()) return false;
    socket.trust();
    socket.send(kHello, hello_of(endpoint->word, job_.rank_));
    socket.pump();
    links_.push_back({.socket = std::move(socket), .rank = 0, .until = {}});
    return true;
  }

  void run();
  void wake() const {
    uint64_t one = 1;
    [[maybe_unused]] ssize_t written = ::write(wake_, &one, sizeof one);
  }

 private:
  struct Link {
    WatchSocket socket;
    int rank = -1;            // the rank at the other end; -1: not identified yet,
    Clock::time_point until;  // and must identify itself by then
  };
  bool first() const { return job_.rank_ == 0; }
  int num_ranks() const { return static_cast<int>(job_.hosts_.size()); }
  void await_something();
  void receive();
  void let_in(Clock::time_point now);
  void drop_stranger(Link& link, const char* why);
  void take(Link& link, const WatchSocket::Message& message);
  void take_hello(Link& link, const std::string& text);
  void take_table(const std::string& table);
  void beat(Clock::time_point now);
  void send_all(uint32_t type, const std::string& content, int except = -1);
  void flush();
  void look(Clock::time_point now);
  void conclude(const CommFailure& failure, const std::vector<int>& found);
  void take_failure(const CommFailure& failure, int from);

  JobWatch& job_;
  JobJudge judge_;
  std::optional<WatchListener> listener_;
  std::vector<bool>
      came_;  // by rank: whether it has identified itself to the first rank, which it may do once
  std::vector<Link> links_;
  int wake_;
  Clock::time_point next_beat_, next_table_;
  int num_dropped_ = 0;
  bool over_ = false;                        // the job has failed
  std::optional<Clock::time_point> end_by_;  // when the remaining ranks are ended
  std::optional<CommFailure> failure_;
};

void JobWatch::Watcher::run() {
  // The time before a rank connected does not count as silence.
  for (int r = 0; r < num_ranks(); ++r) judge_.heard(r, {}, Clock::now());
  for (;;) {
    bool last = job_.ending_.load();
    std::optional<CommFailure> own_failure;
    {
      std::lock_guard lock(job_.mutex_);
      own_failure.swap(job_.own_failure_);
    }
    receive();
    if (own_failure) take_failure(*own_failure, -1);
    auto now = Clock::now();
    if (now >= next_beat_ || last) beat(now);
    if (last) return flush();
    look(now);
    await_something();
  }
}

void JobWatch::Watcher::await_something() {
  std::vector<pollfd> all{{wake_, POLLIN, 0}};
  if (listener_) all.push_back({listener_->descriptor(), POLLIN, 0});
  for (const Link& link : links_) {
    short events = link.socket.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    if (link.socket.open()) all.push_back({link.socket.descriptor(), events, 0});
  }
  ::poll(all.data(), all.size(), 50);
  uint64_t counter = 0;
  [[maybe_unused]] ssize_t read = ::read(wake_, &counter, sizeof counter);
}

// Other programs may connect to an open port. A connection that does not identify itself in time is
// dropped, as is the oldest if there are too many. Once all ranks are connected, all other
// connections are dropped, and the port is closed.
void JobWatch::Watcher::let_in(Clock::time_point now) {
  auto stranger = [](const Link& link) { return link.rank < 0; };
  if (std::all_of(came_.begin(), came_.end(), [](bool came) { return came; })) {
    listener_.reset();  // first, so that a dropped client cannot connect again
    std::erase_if(links_, stranger);
    return;
  }
  for (Link& link : links_)
    if (stranger(link) && now >= link.until)
      drop_stranger(link, "it did not identify itself in time");
  std::erase_if(links_, [](const Link& link) { return !link.socket.open(); });
  auto num_strangers = static_cast<size_t>(std::count_if(links_.begin(), links_.end(), stranger));
  for (size_t i = 0; i < kMostStrangers; ++i) {
    WatchSocket socket = listener_->accept();
    if (!socket.open()) return;
    if (num_strangers++ >= kMostStrangers) {
      auto oldest = std::find_if(links_.begin(), links_.end(), stranger);
      drop_stranger(*oldest, "there are too many unidentified connections");
      links_.erase(oldest);
    }
    links_.push_back({.socket = std::move(socket), .until = now + kToSayHello});
  }
}

void JobWatch::Watcher::drop_stranger(Link& link, const char* why) {
  if (num_dropped_ < kMostReported)
    log_warn("dropped a connection to port ", listener_->endpoint().port,
             ", which receives the heartbeats of the ranks: ", why);
  if (++num_dropped_ == kMostReported) log_warn("further dropped connections are not reported");
  link.socket.close();
}

void JobWatch::Watcher::receive() {
  if (listener_) let_in(Clock::now());
  bool lost = false;
  for (Link& link : links_) {
    if (!link.socket.open()) continue;
    bool open = link.socket.pump();
    while (auto message = link.socket.next()) take(link, *message);
    if (open && link.socket.open()) continue;
    link.socket.close();
    if (link.rank < 0) continue;
    judge_.lost(link.rank, Clock::now());
    lost = true;
  }
  std::erase_if(links_, [](const Link& link) { return !link.socket.open(); });
  if (lost && first())
    send_all(kAsk, "");  // so that the report has the current status of the others
}

void JobWatch::Watcher::take(Link& link, const WatchSocket::Message& message) {
  if (link.rank < 0) {
    if (message.type == kHello) take_hello(link, message.content);
    if (link.rank < 0) drop_stranger(link, "it is not a rank of this job, or has connected before");
  } else if (message.type == kStatus) {
    if (auto status = read_status(message.content)) judge_.heard(link.rank, *status, Clock::now());
  } else if (message.type == kAsk) {
    beat(Clock::now());
  } else if (message.type == kTable) {
    take_table(message.content);
  } else if (message.type == kFound && !over_) {
    if (auto report = read_failure(message.content)) conclude(report->failure, report->ranks);
  } else if (message.type == kFailed) {
    if (auto report = read_failure(message.content)) take_failure(report->failure, link.rank);
  }
}

void JobWatch::Watcher::take_hello(Link& link, const std::string& text) {
  auto rank = read_hello(text, listener_->endpoint().word, num_ranks());
  if (!rank || came_[static_cast<size_t>(*rank)]) return;
  came_[static_cast<size_t>(*rank)] = true;
  link.rank = *rank;
  link.socket.trust();
  if (failure_)
    link.socket.send(
        kFailed, bytes_of(FailureMessage{*failure_,
                                         {}}));  // the failure happened before this rank connected
}

// The status of the others in the last message of the first rank: the only information when it
// dies.
void JobWatch::Watcher::take_table(const std::string& table) {
  auto now = Clock::now();
  for (int r = 0; r < num_ranks(); ++r) {
    size_t at = static_cast<size_t>(r) * sizeof(RankStatus);
    if (at + sizeof(RankStatus) > table.size()) return;
    auto status = read_status(std::string_view(table).substr(at));
    if (r != 0 && r != job_.rank_ && status) judge_.heard(r, *status, now);
  }
}

void JobWatch::Watcher::beat(Clock::time_point now) {
  next_beat_ = now + (num_ranks() > kManyRanks ? kSlowBeat : kBeat);
  RankStatus mine = job_.activity_.status();
  judge_.heard(job_.rank_, mine, now);
  send_all(kStatus, bytes_of(mine));
  if (!first() || now < next_table_) return;
  std::string table;
  for (int r = 0; r < num_ranks(); ++r) table += bytes_of(judge_.status(r));
  auto seconds =
      static_cast<double>(table.size()) * static_cast<double>(links_.size()) / kTableBytesPerSecond;
  next_table_ = now + std::max(kTableBeat, milliseconds(static_cast<int64_t>(seconds * 1000)));
  send_all(kTable, table);
}

void JobWatch::Watcher::send_all(uint32_t type, const std::string& content, int except) {
  for (Link& link : links_)
    if (link.rank >= 0 && link.rank != except) link.socket.send(type, content);
  for (Link& link : links_) link.socket.pump();
}

void JobWatch::Watcher::flush() {
  auto until = Clock::now() + kToFlush;
  auto unsent = [](const Link& link) { return link.socket.has_unsent(); };
  while (std::any_of(links_.begin(), links_.end(), unsent) && Clock::now() < until) {
    for (Link& link : links_) link.socket.pump();
    std::this_thread::sleep_for(milliseconds(2));
  }
}

void JobWatch::Watcher::look(Clock::time_point now) {
  const WatchOptions& options = job_.context_.watch;
  if (end_by_ && now >= *end_by_ && options.give_up) {
    end_by_.reset();
    std::string who = failure_->rank < 0 ? "" : cat("rank ", failure_->rank, " failed: ");
    options.give_up(Error(failure_->error_class, cat(who, failure_->reason)), false);
  }
  if (over_) return;
  if (!first()) {
    // Only the first rank knows whether the other ranks live.
    for (int r = 1; r < num_ranks(); ++r)
      judge_.heard(r, r == job_.rank_ ? job_.activity_.status() : judge_.status(r), now);
  } else if (auto slow = judge_.slow_rank(); slow && options.note) {
    options.note(*slow);
  }
  auto found = judge_.look(now, first());
  if (!found) return;
  CommFailure failure{.rank = found->ranks.empty() ? -1 : found->ranks[0],
                      .reason = found->message,
                      .detected_by_watcher = true};
  send_all(kFound, bytes_of(FailureMessage{
                       failure, found->ranks}));  // also to the first rank, which may still resume
  flush();
  conclude(failure, found->ranks);
}

void JobWatch::Watcher::conclude(const CommFailure& failure, const std::vector<int>& found) {
  over_ = true;
  int speaker = 0;
  while (std::find(found.begin(), found.end(), speaker) != found.end()) ++speaker;
  {
    std::lock_guard lock(job_.mutex_);
    job_.failure_ = failure;
    job_.failure_->detected_by_watcher = true;
  }
  Error error = peer_error(*job_.failure_, job_.rank_, "");
  if (const auto& give_up = job_.context_.watch.give_up)
    give_up(error, job_.rank_ == speaker);
  else
    job_.failed_.store(true);
}

void JobWatch::Watcher::take_failure(const CommFailure& failure, int from) {
  if (over_) return;
  over_ = true;
  failure_ = failure;
  end_by_ = Clock::now() +
            std::chrono::duration_cast<milliseconds>(job_.context_.watch.silence * kFinishShare);
  send_all(kFailed, bytes_of(FailureMessage{failure, {}}), from);
  flush();
}

JobWatch::JobWatch(int rank, std::vector<std::string> hosts, const CommContext& context)
    : rank_(rank),
      hosts_(std::move(hosts)),
      context_(context),
      watcher_(std::make_unique<Watcher>(*this)) {}

JobWatch::~JobWatch() { end(); }

std::string JobWatch::open_endpoint() {
  watcher_->open_endpoint();
  return watcher_->endpoint();
}

bool JobWatch::connect(const std::string& endpoint, std::string& reason) {
  return watcher_->connect(endpoint, reason);
}

void JobWatch::begin() {
  thread_ = std::thread([this] { watcher_->run(); });
}

std::optional<CommFailure> JobWatch::failure() const {
  std::lock_guard lock(mutex_);
  return failed() ? failure_ : std::nullopt;
}

void JobWatch::report_failure(const std::string& reason, ErrorClass error_class) {
  activity_.end(true);
  {
    std::lock_guard lock(mutex_);
    own_failure_ = CommFailure{.rank = rank_, .reason = reason, .error_class = error_class};
  }
  watcher_->wake();
}

void JobWatch::end() {
  if (!thread_.joinable()) return;
  activity_.end();
  ending_.store(true);
  watcher_->wake();
  thread_.join();
}

}  // namespace mtrain
