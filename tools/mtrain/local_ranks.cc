#include "local_ranks.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string_view>

#include "cli.h"
#include "cores.h"
#include "mtrain/base/authentication.h"
#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/base/text_stream.h"
#include "mtrain/train/signals.h"

namespace mtrain {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kTimeToSpeak{30};  // for the remaining ranks when one has failed
constexpr size_t kMostCounted = 1000;             // different lines; further ones are all shown
constexpr const char* kHere = "127.0.0.1";

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept { return std::swap(fd_, other.fd_), *this; }
  int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

[[noreturn]] void refused(const char* what) {
  throw Error(ErrorClass::io, cat(what, ": ", std::strerror(errno)),
              "see the limits of processes and open files (ulimit -u, ulimit -n)");
}

/// A free port of this machine, below the range that the kernel uses for outgoing connections.
int free_port() {
  constexpr int kFirst = 12000, kCount = 20000, kTries = 200;
  for (int i = 0; i < kTries; ++i) {
    std::array<std::byte, 4> random{};
    fill_with_random(random);
    uint32_t number = 0;
    std::memcpy(&number, random.data(), sizeof number);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<uint16_t>(kFirst + number % kCount));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.get() < 0) refused("no socket can be opened for the rendezvous of the ranks");
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0)
      return ntohs(place.sin_port);
  }
  refused("no port of this machine is free for the rendezvous of the ranks");
}

sigset_t watched_signals() {
  sigset_t set = stop_signals();
  sigaddset(&set, SIGCHLD);
  return set;
}

struct Rank {
  pid_t pid = -1;
  Descriptor errors;  // reading end of its standard error
  bool running = true;
  int status = 0;  // of waitpid, once it has ended
};

class LocalJob {
 public:
  LocalJob(const std::vector<std::string>& words, size_t ranks)
      : words_(words), ranks_(ranks), lines_(ranks) {}
  ~LocalJob() { signal_all(SIGKILL); }
  LocalJob(const LocalJob&) = delete;
  LocalJob& operator=(const LocalJob&) = delete;

  int run();

 private:
  void start_all();
  void start(size_t rank);
  [[noreturn]] void become(size_t rank, int errors, pid_t parent);
  void set_environment(size_t rank) const;
  void follow();
  void take_signals();
  void tick();
  void collect_ended();
  void read_errors(size_t rank);
  void show(const std::string& text) const;
  void signal_all(int signal) const;
  bool any_running() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.running; });
  }
  int outcome() const;
  std::string ended_by_signal() const;

  const std::vector<std::string>& words_;
  std::vector<Rank> ranks_;
  CommonLines lines_;
  StopRequests requests_;
  Clock::time_point ticked_ = Clock::now();
  Descriptor signals_;
  std::string port_, secret_;
  int stop_signal_ = 0;                       // the signal that asked for a stop
  size_t first_failed_ = SIZE_MAX;            // the rank that failed first
  std::optional<Clock::time_point> give_up_;  // when the remaining ranks are ended
  const bool terminal_ =
      ::isatty(STDERR_FILENO) == 1 &&
      std::string_view(std::getenv("TERM") ? std::getenv("TERM") : "dumb") != "dumb";
};

void LocalJob::set_environment(size_t rank) const {
  auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); };
  for (const char* size : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"})
    set(size, std::to_string(ranks_.size()));
  for (const char* number : {"RANK", "LOCAL_RANK"}) set(number, std::to_string(rank));
  set("MASTER_ADDR", kHere);
  set("MASTER_PORT", port_);
  if (!std::getenv("MTRAIN_JOB_SECRET_FILE")) ::setenv("MTRAIN_JOB_SECRET", secret_.c_str(), 0);
}

void LocalJob::become(size_t rank, int errors, pid_t parent) {
  // An interrupt from the terminal reaches only this program, which forwards it once.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // ends the job when this program is killed
  if (::getppid() != parent) ::_exit(1);
  set_environment(rank);
  bind_to_share(static_cast<int>(rank), static_cast<int>(ranks_.size()));
  if (int nothing = ::open("/dev/null", O_RDONLY); nothing >= 0)
    ::dup2(nothing, 0);  // reading a terminal would stop it
  ::dup2(errors, 2);
  sigset_t set = watched_signals();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  std::string program = (program_directory() / "mtrain").string();
  std::vector<std::string> words = words_;
  std::vector<char*> argv = {program.data()};
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

void LocalJob::start(size_t rank) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) refused("no pipe can be opened for a rank");
  ranks_[rank].errors = Descriptor(pipe[0]);
  Descriptor theirs(pipe[1]);
  pid_t self = ::getpid(), child = ::fork();
  if (child < 0) refused("no process can be started for a rank");
  if (child == 0) become(rank, theirs.get(), self);
  ranks_[rank].pid = child;
}

void LocalJob::start_all() {
  port_ = std::to_string(free_port());
  secret_ = random_hex(32);
  for (auto& rank : ranks_) rank.running = false;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    start(rank);
    ranks_[rank].running = true;
  }
}

void LocalJob::signal_all(int signal) const {
  for (const auto& rank : ranks_)
    if (rank.running && rank.pid > 0) ::kill(rank.pid, signal);
}

void LocalJob::show(const std::string& text) const {
  // On a terminal the current row may contain the first rank's progress.
  if (!text.empty()) write_standard_error(cat(terminal_ ? "\r\x1b[K" : "", text));
}

void LocalJob::read_errors(size_t rank) {
  char buffer[16384];
  ssize_t got = ::read(ranks_[rank].errors.get(), buffer, sizeof buffer);
  if (got < 0 && errno == EINTR) return;
  if (got > 0) return show(lines_.take(rank, std::string(buffer, static_cast<size_t>(got))));
  ranks_[rank].errors.close();
  show(lines_.end(rank));
}

void LocalJob::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    StopRequests::Meaning meaning = requests_.take(signal);
    if (meaning == StopRequests::Meaning::stop) stop_signal_ = signal;
    if (meaning == StopRequests::Meaning::stop) signal_all(signal);
    if (meaning == StopRequests::Meaning::end_at_once) signal_all(SIGKILL);
  }
}

void LocalJob::collect_ended() {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    if (!rank.running || ::waitpid(rank.pid, &rank.status, WNOHANG) != rank.pid) continue;
    rank.running = false;
    bool failed = !WIFEXITED(rank.status) || WEXITSTATUS(rank.status) != 0;
    if (!failed || first_failed_ != SIZE_MAX) continue;
    first_failed_ = r;
    give_up_ = Clock::now() + kTimeToSpeak;
  }
  if (!give_up_ || stop_signal_ != 0 || Clock::now() < *give_up_) return;
  signal_all(SIGKILL);
  give_up_.reset();
}

void LocalJob::follow() {
  while (true) {
    std::vector<pollfd> wait = {{signals_.get(), POLLIN, 0}};
    std::vector<size_t> of;
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (ranks_[r].errors.get() >= 0)
        wait.push_back({ranks_[r].errors.get(), POLLIN, 0}), of.push_back(r);
    // A child process of a rank may keep its pipe open, so wait for the ranks' ends and not for the
    // end of their output.
    const bool over = !any_running();
    int ready = ::poll(wait.data(), wait.size(), over ? 0 : 100);
    for (size_t i = 0; i < of.size() && ready > 0; ++i)
      if (wait[i + 1].revents != 0) read_errors(of[i]);
    if (over && ready <= 0) return;
    take_signals();
    collect_ended();
    tick();
  }
}

/// Checks the time for requests_, also while ranks write without a pause.
void LocalJob::tick() {
  const auto now = Clock::now();
  if (now - ticked_ < std::chrono::nanoseconds(StopRequests::kTick.tv_nsec)) return;
  ticked_ = now;
  requests_.tick();
}

std::string LocalJob::ended_by_signal() const {
  for (size_t r = 0; r < ranks_.size(); ++r)
    if (WIFSIGNALED(ranks_[r].status) &&
        (r == first_failed_ || WTERMSIG(ranks_[r].status) != SIGKILL))
      return cat("rank ", r, " was ended by signal ", WTERMSIG(ranks_[r].status), " (",
                 strsignal(WTERMSIG(ranks_[r].status)), ")");
  return {};
}

/// A rank's own error takes precedence over what other ranks report about it.
int LocalJob::outcome() const {
  if (first_failed_ == SIZE_MAX) return 0;
  if (stop_signal_ != 0) return 128 + stop_signal_;
  const int peer = static_cast<int>(ErrorClass::peer);
  if (std::string fault = ended_by_signal(); !fault.empty()) {
    show(cat(headline(name(ErrorClass::peer), fault),
             "  help: see above for what is known; the same command continues from the newest "
             "checkpoint\n"));
    return peer;
  }
  const Rank& first = ranks_[first_failed_];
  if (WIFEXITED(first.status) && WEXITSTATUS(first.status) != peer)
    return WEXITSTATUS(first.status);
  for (const auto& rank : ranks_)
    if (WIFEXITED(rank.status) && WEXITSTATUS(rank.status) != 0 && WEXITSTATUS(rank.status) != peer)
      return WEXITSTATUS(rank.status);
  return peer;
}

int LocalJob::run() {
  sigset_t set = watched_signals(), before;
  sigprocmask(SIG_BLOCK, &set, &before);
  signals_ = Descriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals_.get() < 0) refused("signals cannot be watched");
  start_all();
  follow();
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return outcome();
}

}  // namespace

std::string CommonLines::shown(size_t rank, const std::string& line) {
  auto known =
      std::find_if(counts_.begin(), counts_.end(), [&](const Count& c) { return c.line == line; });
  if (known == counts_.end()) {
    if (counts_.size() >= kMostCounted) return line;
    counts_.push_back({line, std::vector<int>(begun_.size()), 0});
    known = counts_.end() - 1;
  }
  if (++known->of[rank] <= known->shown) return {};
  known->shown = known->of[rank];
  return line;
}

std::string CommonLines::take(size_t rank, const std::string& text) {
  std::string& begun = begun_[rank];
  begun += text;
  std::string out;
  size_t at = 0;
  for (size_t end; (end = begun.find('\n', at)) != std::string::npos; at = end + 1)
    out += shown(rank, begun.substr(at, end + 1 - at));
  begun.erase(0, at);
  return out;
}

std::string CommonLines::end(size_t rank) {
  std::string left = std::exchange(begun_[rank], {});
  return left.empty() ? left : shown(rank, left + "\n");
}

int run_local_ranks(const std::vector<std::string>& words, int64_t nproc) {
  std::cout.flush();
  return LocalJob(words, static_cast<size_t>(nproc)).run();
}

}  // namespace mtrain
