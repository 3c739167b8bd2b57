#include "mtrain/data/line_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/base/failpoint.h"

namespace mtrain {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;

[[noreturn]] void fail(const char* what, const fs::path& path, int error) {
  throw Error(ErrorClass::io, cat("cannot ", what, " ", path.string(), ": ", std::strerror(error)),
              error == ENOENT ? "check the path for a typo" : "");
}

}  // namespace

LineReader::LineReader(const fs::path& path, uint64_t max_line_bytes)
    : path_(path), max_line_bytes_(max_line_bytes) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) fail("open", path, errno);
  try {
    struct stat info {};
    if (::fstat(fd_, &info) == 0 && S_ISDIR(info.st_mode)) fail("read", path, EISDIR);
    refill();
    check_start();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

LineReader::~LineReader() {
  ::close(fd_);
}

std::string LineReader::place() const {
  return cat(path_.string(), ":", line_number_);
}

void LineReader::check_start() {
  auto start = std::string_view(buffer_).substr(begin_, end_ - begin_);
  if (start.starts_with("\xEF\xBB\xBF")) begin_ += 3;
  if (start.starts_with("\xFF\xFE") || start.starts_with("\xFE\xFF"))
    throw Error(ErrorClass::data, cat(path_.string(), " is UTF-16 text; UTF-8 is wanted"),
                cat("convert it: iconv -f UTF-16 -t UTF-8 ", path_.string(), " > utf8.txt"));
  bool gzip = start.starts_with("\x1F\x8B"), zstd = start.starts_with("\x28\xB5\x2F\xFD");
  if (gzip || zstd)
    throw Error(ErrorClass::data, cat(path_.string(), " is compressed"),
                cat("decompress it first: ", gzip ? "gzip" : "zstd", " -dk ", path_.string()));
}

/// Reads more behind the bytes not yet given; false at the end of the file.
bool LineReader::refill() {
  if (at_end_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < end_ + kBlockBytes) buffer_.resize(std::max(buffer_.size() * 2, end_ + kBlockBytes));
  for (;;) {
    Fault fault = failpoint("data.read");
    ssize_t got = fault.action == FaultAction::fail_errno ? (errno = fault.error, -1)
                                                          : ::read(fd_, buffer_.data() + end_, kBlockBytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path_, errno);
    end_ += static_cast<size_t>(got);
    bytes_ += static_cast<uint64_t>(got);
    at_end_ = got == 0;
    return got > 0;
  }
}

bool LineReader::next(std::string_view& line) {
  size_t seen = 0;  // bytes after begin_ known to hold no line end
  for (;;) {
    const char* from = buffer_.data() + begin_;
    const void* found = std::memchr(from + seen, '\n', end_ - begin_ - seen);
    if (found || at_end_) {
      size_t size = found ? static_cast<size_t>(static_cast<const char*>(found) - from) : end_ - begin_;
      if (!found && size == 0) return false;
      ++line_number_;
      had_end_ = found != nullptr;
      begin_ += size + (found ? 1 : 0);
      if (found && size > 0 && from[size - 1] == '\r') --size;
      line = {from, size};
      if (size <= max_line_bytes_) return true;
    }
    seen = end_ - begin_;
    if (found || at_end_ || seen > max_line_bytes_ + 1) {
      if (!found && !at_end_) ++line_number_;
      throw Error(ErrorClass::data,
                  cat(place(), ": the line is longer than the limit of ", human_bytes(max_line_bytes_)),
                  "raise --max-document-bytes, or split the line");
    }
    refill();
  }
}

}  // namespace mtrain
