#include "mtrain/data/spill.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/base/failpoint.h"

namespace mtrain {
namespace {

constexpr size_t kSpillBufferBytes = size_t{1} << 20;

int nameless_file(const fs::path& folder) {
  const fs::path where = folder.empty() ? fs::path(".") : folder;
  int fd = ::open(where.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string name =
      (where / ".mtrain-spill-XXXXXX").string();  // for file systems without O_TMPFILE
  fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd >= 0) ::unlink(name.c_str());
  return fd;
}

}  // namespace

SpillFile::~SpillFile() {
  if (fd_ >= 0) ::close(fd_);
}

void SpillFile::fail(const char* what) const {
  throw Error(
      ErrorClass::io,
      cat("cannot ", what, " a temporary file in ", folder_.string(), ": ", std::strerror(errno)),
      "check that the folder of --output has room and can be written");
}

void SpillFile::append(std::span<const std::byte> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  if (buffer_.size() >= kSpillBufferBytes) flush();
}

void SpillFile::flush() {
  if (fd_ < 0 && (fd_ = nameless_file(folder_)) < 0) fail("make");
  for (size_t done = 0; done < buffer_.size();) {
    const Fault fault = failpoint("data.spill.write");
    const ssize_t got = fault.action == FaultAction::fail_errno
                            ? (errno = fault.error, -1)
                            : ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("write");
    done += static_cast<size_t>(got);
  }
  stored_ += buffer_.size();
  buffer_.clear();
}

void SpillFile::each(size_t item, const std::function<void(std::span<const std::byte>)>& take) {
  std::vector<std::byte> piece(std::min<uint64_t>(stored_, kSpillBufferBytes / item * item));
  for (uint64_t at = 0; at < stored_;) {
    const auto wanted = static_cast<size_t>(std::min<uint64_t>(piece.size(), stored_ - at));
    for (size_t done = 0; done < wanted;) {
      const ssize_t got =
          ::pread(fd_, piece.data() + done, wanted - done, static_cast<off_t>(at + done));
      if (got < 0 && errno == EINTR) continue;
      if (got == 0) errno = EIO;
      if (got <= 0) fail("read");
      done += static_cast<size_t>(got);
    }
    take(std::span(piece).first(wanted));
    at += wanted;
  }
  if (!buffer_.empty()) take(buffer_);
}

}  // namespace mtrain
