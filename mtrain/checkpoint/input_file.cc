#include "mtrain/checkpoint/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "mtrain/base/errno_hint.h"
#include "mtrain/base/error.h"
#include "mtrain/base/failpoint.h"
#include "mtrain/base/hash.h"

namespace mtrain {
namespace {

[[noreturn]] void fail_open(const fs::path& path, int error) {
  bool absent = error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG;
  throw Error(absent ? ErrorClass::checkpoint : ErrorClass::io,
              cat("cannot open ", printable(path.string()), ": ", std::strerror(error)),
              absent ? "check the path, or fetch the missing file again" : errno_hint(error));
}

}  // namespace

InputFile::InputFile(fs::path path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a named pipe instead of a file must not block.
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd_ < 0) fail_open(path_, errno);
  struct stat info {};
  int error = ::fstat(fd_, &info) != 0 ? errno : 0;
  if (error == 0 && S_ISREG(info.st_mode)) {
    size_ = static_cast<uint64_t>(info.st_size);
    return;
  }
  ::close(fd_);
  if (error) fail_open(path_, error);
  throw Error(ErrorClass::checkpoint,
              cat(printable(path_.string()), ": wanted a regular file, got ",
                  S_ISDIR(info.st_mode) ? "a folder" : "a device, pipe or socket"),
              "give the path of a regular file");
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

void InputFile::read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    Fault fault = failpoint("ckpt.read");
    ssize_t got = -1;
    if (fault.action == FaultAction::fail_errno)
      errno = fault.error;
    else
      got = ::pread(fd_, out.data(), std::min(out.size(), size_t{1} << 30),
                    static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw Error(ErrorClass::io,
                  cat("cannot read ", printable(path_.string()), " at byte ", offset, ": ",
                      std::strerror(errno)),
                  "check the disk or file server");
    if (got == 0)
      throw Error(ErrorClass::io,
                  cat(printable(path_.string()), " ends at byte ", offset, " but had ", size_,
                      " bytes when it was opened: it was truncated while being read"),
                  "make sure that no other program writes to the file while it is in use");
    offset += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
}

uint32_t InputFile::crc32c(uint64_t offset, uint64_t bytes) const {
  std::vector<std::byte> buffer(std::min<uint64_t>(bytes, 1 << 20));
  uint32_t crc = 0;
  while (bytes > 0) {
    auto piece = std::span(buffer).first(std::min<uint64_t>(bytes, buffer.size()));
    read(offset, piece);
    crc = mtrain::crc32c(piece, crc);
    offset += piece.size(), bytes -= piece.size();
  }
  return crc;
}

}  // namespace mtrain
