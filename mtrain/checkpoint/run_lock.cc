#include "mtrain/checkpoint/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "mtrain/base/error.h"
#include "mtrain/base/log.h"

namespace mtrain {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string holder(int fd) {
  std::array<char, 512> text{};
  ssize_t got = ::pread(fd, text.data(), text.size() - 1, 0);
  return got > 0 ? printable(trim(std::string_view(text.data(), static_cast<size_t>(got))))
                 : "unknown";
}

std::string this_process() { return cat("pid ", ::getpid(), " host ", host_name()); }

constexpr const char* kLockName = "run.lock";

}  // namespace

RunLock::RunLock(const fs::path& folder) {
  make_directories(folder);
  fs::path path = file_of(folder);
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd_ < 0)
    throw Error(ErrorClass::io, cat("cannot create ", path.string(), ": ", std::strerror(errno)),
                "check the permissions of the folder, or write elsewhere (run.dir=PATH)");
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    int error = errno;
    std::string who = holder(fd_);
    ::close(std::exchange(fd_, -1));
    if (error == EWOULDBLOCK)
      throw Error(ErrorClass::io, cat(folder.string(), " is in use by another job (", who, ")"),
                  "stop that job, or give this one its own folder (run.dir=PATH)");
    log_warn("cannot lock ", path.string(), ": ", std::strerror(error),
             "; make sure that no other job uses the folder");
    return;
  }
  std::string text = this_process() + "\n";
  if (::ftruncate(fd_, 0) != 0 ||
      ::pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    int error = errno;
    ::close(std::exchange(fd_, -1));
    throw Error(ErrorClass::io, cat("cannot write ", path.string(), ": ", std::strerror(error)),
                "free some space or write elsewhere (run.dir=PATH)");
  }
}

fs::path RunLock::file_of(const fs::path& folder) { return folder / kLockName; }

bool RunLock::held_by_another(const fs::path& folder) {
  const int fd = ::open(file_of(folder).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  // This process may hold the lock through another descriptor.
  const bool held = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  const bool another = held && holder(fd) != this_process();
  ::close(fd);
  return another;
}

bool RunLock::is_free(const fs::path& folder) {
  const int fd = ::open(file_of(folder).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  const bool taken = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  ::close(fd);
  return taken;
}

RunLock::~RunLock() {
  if (fd_ >= 0) ::close(fd_);
}
RunLock::RunLock(RunLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

}  // namespace mtrain
