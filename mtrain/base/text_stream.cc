#include "mtrain/base/text_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <utility>

#include "mtrain/base/counted.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

constexpr int kWaitMs = 100, kIdleWaits = 10,
              kMostWaits = 1000;  // flush(): waits without progress; waits in all

// Suppresses a SIGPIPE that this thread raises. A SIGPIPE that was pending before stays pending.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigset_t pending;
    sigemptyset(&set_);
    sigaddset(&set_, SIGPIPE);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~NoSigpipe() {
    timespec now{};
    if (!was_pending_) sigtimedwait(&set_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t set_, before_;
  bool was_pending_ = false;
};

size_t lines_of(std::string_view text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TextStream::TextStream(int fd) : fd_(::fcntl(fd, F_DUPFD_CLOEXEC, 3)) {
  struct stat info {};
  if (fd_ < 0 || ::fstat(fd_, &info) != 0) return;
  if (S_ISSOCK(info.st_mode)) kind_ = Kind::socket;
  if (S_ISFIFO(info.st_mode) || is_terminal()) open_anew();
}

TextStream::~TextStream() {
  if (fd_ >= 0) ::close(fd_);
}

/// O_NONBLOCK is a property of the open file description, which other programs share, so this opens
/// a new one. If the system refuses (a terminal of another user), each write polls first, and
/// another writer may fill the pipe in between.
void TextStream::open_anew() {
  int own =
      ::open(cat("/proc/self/fd/", fd_).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  kind_ = own >= 0 ? Kind::never_waits : Kind::asks_first;
  if (own >= 0) ::close(std::exchange(fd_, own));
}

long TextStream::write_some(std::string_view text) const {
  if (kind_ == Kind::socket)
    return ::send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (kind_ == Kind::asks_first) {
    pollfd wait{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (::poll(&wait, 1, 0) == 0) return errno = EAGAIN, -1;
    text = text.substr(0, PIPE_BUF);  // a write of this size does not block after a successful poll
  }
  return ::write(fd_, text.data(), text.size());
}

/// Writes as much as the reader accepts now; returns true when nothing is left.
bool TextStream::drain() {
  size_t done = 0;
  while (fd_ >= 0 && done < kept_.size()) {
    long got = write_some(std::string_view(kept_).substr(done));
    if (got >= 0)
      done += static_cast<size_t>(got);
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      break;
    else if (errno != EINTR)
      return fail(errno), true;
    if (done == kept_.size() && missing_ > 0) {
      size_t lines = std::exchange(missing_, 0);
      kept_ += cat("(", counted(lines, "line is", "lines are"),
                   " missing here: the reader was too slow)\n");
    }
  }
  kept_.erase(0, done);
  return fd_ < 0 || kept_.empty();
}

void TextStream::write(std::string_view text) {
  if (fd_ < 0) return;
  NoSigpipe guard;
  // While a line is missing, new lines are dropped too until the notice about missing lines is
  // written, which follows the buffered text.
  if (!drain() && (missing_ > 0 || kept_.size() + text.size() > kMostKept)) {
    dropped_ += lines_of(text), missing_ += lines_of(text);
    return;
  }
  if (fd_ < 0) return;
  kept_ += text;
  drain();
}

void TextStream::flush() {
  NoSigpipe guard;
  for (int waits = 0, idle = 0; !drain() && waits < kMostWaits && idle < kIdleWaits; ++waits) {
    pollfd wait{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (::poll(&wait, 1, kWaitMs) == 0) ++idle;
  }
}

// A full disk may get free space again, but the lost text is not written again; a closed pipe stays
// closed.
void TextStream::fail(int error) {
  if (error_ == 0) error_ = error;
  dropped_ += lines_of(kept_);
  kept_.clear();
  if (error == EPIPE || error == EBADF || error == EIO) ::close(std::exchange(fd_, -1));
}

size_t TextStream::lost() const { return error_ != 0 ? 0 : dropped_ + lines_of(kept_); }

bool TextStream::is_terminal() const { return fd_ >= 0 && ::isatty(fd_) == 1; }

int TextStream::columns(int otherwise) const {
  winsize size{};
  return fd_ >= 0 && ::ioctl(fd_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                             : otherwise;
}

namespace {

struct StandardError {
  std::mutex mutex;
  TextStream stream{2};
};

// Never destroyed: threads may log until the process ends.
StandardError& standard_error() {
  static StandardError* const kStream = [] {
    std::atexit(flush_standard_error);
    return new StandardError;
  }();
  return *kStream;
}

}  // namespace

void write_standard_error(std::string_view text) {
  StandardError& to = standard_error();
  std::lock_guard lock(to.mutex);
  to.stream.write(text);
}

void flush_standard_error() {
  StandardError& to = standard_error();
  std::lock_guard lock(to.mutex);
  to.stream.flush();
}

}  // namespace mtrain
