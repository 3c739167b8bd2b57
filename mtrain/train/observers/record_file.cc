#include "mtrain/train/observers/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <span>
#include <utility>
#include <vector>

#include "mtrain/base/failpoint.h"
#include "mtrain/base/log.h"

namespace mtrain {
namespace {

ssize_t write_once(int fd, std::string_view record, const std::string& site) {
  Fault fault = failpoint(site);
  if (fault.action == FaultAction::fail_errno) {
    errno = fault.error;
    return -1;
  }
  size_t want = fault.action == FaultAction::short_write ? record.size() / 2 : record.size();
  ssize_t got;
  do got = ::write(fd, record.data(), want);
  while (got < 0 && errno == EINTR);
  return got;
}

// The step of a line that begins with it; -1 for any other line.
int64_t step_of(std::string_view line) {
  constexpr std::string_view kHead = "{\"step\":";
  if (!line.starts_with(kHead)) return -1;
  line.remove_prefix(kHead.size());
  int64_t step = -1;
  auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  return error == std::errc() && end != line.data() + line.size() && *end == ',' ? step : -1;
}

}  // namespace

int64_t bytes_up_to_step(const fs::path& path, int64_t last) {
  constexpr size_t kHeadBytes = 40;  // enough for the step
  std::error_code ignored;
  if (last <= 0 || !fs::is_regular_file(path, ignored)) return 0;
  std::ifstream in(path, std::ios::binary);
  std::vector<char> buffer(1 << 16);
  std::string head;
  int64_t position = 0, keep = 0;
  do {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    for (char c : std::span(buffer.data(), static_cast<size_t>(in.gcount()))) {
      ++position;
      if (c != '\n') {
        if (head.size() < kHeadBytes) head += c;
        continue;
      }
      if (step_of(head) > last) return keep;
      keep = position;
      head.clear();
    }
  } while (in);
  return keep;
}

RecordFile::RecordFile(fs::path path, std::string what)
    : path_(std::move(path)), what_(std::move(what)) {
  Fault fault = failpoint(what_ + ".open");
  errno = fault.error;
  if (fault.action != FaultAction::fail_errno)
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0)
    warn("open", errno);
  else
    inside_fd_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
}

RecordFile::~RecordFile() {
  if (fd_ >= 0) ::close(fd_);
  if (inside_fd_ >= 0) ::close(inside_fd_);
}

int64_t RecordFile::append(std::string_view record) {
  if (!usable()) return -1;
  struct stat info {};
  if (::fstat(fd_, &info) != 0) {
    warn("read", errno);
    return -1;
  }
  ssize_t got = write_once(fd_, record, what_ + ".write");
  if (got == static_cast<ssize_t>(record.size())) return info.st_size;
  int error =
      got < 0 ? errno : ENOSPC;  // a write to a regular file is short only if the disk is full
  if (got > 0) truncate(info.st_size);
  warn("write", error);
  return -1;
}

bool RecordFile::replace(int64_t offset, std::string_view before, std::string_view after) {
  if (inside_fd_ < 0 || before.size() != after.size()) return false;
  std::string there(before.size(), '\0');
  if (::pread(inside_fd_, there.data(), there.size(), offset) !=
          static_cast<ssize_t>(there.size()) ||
      there != before)
    return false;
  if (::pwrite(inside_fd_, after.data(), after.size(), offset) ==
      static_cast<ssize_t>(after.size()))
    return true;
  warn("write", errno);
  return false;
}

void RecordFile::truncate(int64_t bytes) {
  struct stat info {};
  if (!usable() || ::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size <= bytes)
    return;
  if (::ftruncate(fd_, bytes) != 0) warn("shorten", errno);
}

void RecordFile::warn(const char* operation, int error) {
  if (std::exchange(warned_, true)) return;
  log_warn("cannot ", operation, " ", path_.string(), ": ", std::strerror(error),
           "; training continues, but ", what_, " may have gaps");
}

}  // namespace mtrain
