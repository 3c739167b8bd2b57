#include "mtrain/train/observers/console_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <utility>

#include "mtrain/base/log.h"

namespace mtrain {
namespace {

constexpr int kMaxWaitMs = 1000;  // for a reader of a non-blocking pipe or terminal that has stopped reading

// Keeps a SIGPIPE that this thread raises from being delivered. One that was pending before stays pending.
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

}  // namespace

ConsoleStream::ConsoleStream(int fd) : fd_(::fcntl(fd, F_DUPFD_CLOEXEC, 3)) {}

ConsoleStream::~ConsoleStream() {
  if (fd_ >= 0) ::close(fd_);
}

void ConsoleStream::write(std::string_view text) {
  if (fd_ < 0) return;
  NoSigpipe guard;  // also for the warning: standard error often is the same pipe
  write_all(text);
}

void ConsoleStream::write_all(std::string_view text) {
  while (!text.empty()) {
    ssize_t got = ::write(fd_, text.data(), text.size());
    if (got >= 0) {
      text.remove_prefix(static_cast<size_t>(got));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd wait{.fd = fd_, .events = POLLOUT, .revents = 0};
      if (::poll(&wait, 1, kMaxWaitMs) == 0) return;  // the rest of this text is dropped
    } else if (errno != EINTR) {
      return fail(errno);
    }
  }
}

// A full disk may become free again; a closed pipe never opens.
void ConsoleStream::fail(int error) {
  if (error == EPIPE || error == EBADF || error == EIO) ::close(std::exchange(fd_, -1));
  if (std::exchange(warned_, true)) return;
  log_warn("cannot write to standard output: ", std::strerror(error), "; training goes on without it");
}

bool ConsoleStream::is_terminal() const {
  return fd_ >= 0 && ::isatty(fd_) == 1;
}

int ConsoleStream::columns(int otherwise) const {
  winsize size{};
  return fd_ >= 0 && ::ioctl(fd_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

}  // namespace mtrain
