#include "mtrain/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "mtrain/base/errno_hint.h"
#include "mtrain/base/error.h"
#include "mtrain/base/failpoint.h"
#include "mtrain/base/mapping_guard.h"

namespace mtrain {
namespace {

[[noreturn]] void fail(const char* what, const fs::path& path, int error) {
  throw Error(ErrorClass::io, cat("cannot ", what, " ", path.string(), ": ", std::strerror(error)),
              errno_hint(error));
}

int injected(std::string_view site, const char* operation) {
  Fault fault = failpoint(cat(site, ".", operation));
  return fault.action == FaultAction::fail_errno ? fault.error : 0;
}

/// After bytes `before` to `after` - 1 were written, lets the disk begin to write whole parts of
/// the file, so that sync() waits less. A failure has no effect: sync() reports it.
void begin_writeback(int fd, uint64_t before, uint64_t after) {
  constexpr uint64_t kPart = 8 << 20;
  const uint64_t from = before / kPart * kPart, to = after / kPart * kPart;
  if (from < to)
    ::sync_file_range(fd, static_cast<off64_t>(from), static_cast<off64_t>(to - from),
                      SYNC_FILE_RANGE_WRITE);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

namespace {

/// The descriptor that a path such as /dev/fd/63 refers to; -1 for other paths.
int named_descriptor(const fs::path& path) {
  const std::string& text = path.native();
  for (std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    int fd = -1;
    if (!text.starts_with(folder)) continue;
    auto [end, error] = std::from_chars(text.data() + folder.size(), text.data() + text.size(), fd);
    if (error == std::errc() && end == text.data() + text.size()) return fd;
  }
  return -1;
}

/// A duplicate of the pipe that the path refers to as a descriptor of this process, else -1. The
/// pipe is not opened again: without O_NONBLOCK that could wait for a writer, and with it a read
/// would not wait for data.
int copy_of_pipe(const fs::path& path) {
  int fd = named_descriptor(path);
  struct stat info {};
  return fd >= 0 && ::fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode)
             ? ::fcntl(fd, F_DUPFD_CLOEXEC, 0)
             : -1;
}

/// Replaces a pipe that was read to its end by a file with its content. So `-f <(…)` has the same
/// content for later readers, and for processes that inherit the descriptor.
void keep_content(int pipe, std::string_view content) {
  const int file = ::memfd_create("mtrain-pipe", MFD_CLOEXEC);
  if (file < 0) return;
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    content.remove_prefix(static_cast<size_t>(written));
  }
  if (content.empty()) ::dup2(file, pipe);
  ::close(file);
}

int open_without_pipes(const fs::path& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK |
                                    O_NOCTTY);  // open() of a pipe without a writer would block
  if (fd < 0) fail("open", path, errno);
  struct stat info {};
  int error = ::fstat(fd, &info) != 0 ? errno : S_ISDIR(info.st_mode) ? EISDIR : 0;
  if (error == 0 && S_ISREG(info.st_mode)) return fd;
  ::close(fd);
  if (error != 0) fail("read", path, error);
  throw Error(ErrorClass::io,
              cat("cannot read ", printable(path.string()),
                  ": wanted a regular file, got a device, pipe or socket"),
              "name a file; where a command takes standard input, use `-` and a pipe");
}

}  // namespace

int open_regular_file(const fs::path& path) {
  const int pipe = copy_of_pipe(path);
  return pipe >= 0 ? pipe : open_without_pipes(path);
}

std::string read_file(const fs::path& path, uint64_t max_bytes) {
  const int pipe = copy_of_pipe(path);
  Descriptor fd(pipe >= 0 ? pipe : open_without_pipes(path));
  std::string out;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path, errno);
    if (got == 0) {
      if (pipe >= 0) keep_content(named_descriptor(path), out);
      return out;
    }
    out.append(buffer.data(), static_cast<size_t>(got));
    MT_USER_CHECK(out.size() <= max_bytes, ErrorClass::io,
                  cat(path.string(), " is larger than the limit of ", human_bytes(max_bytes)), "");
  }
}

FileWriter::FileWriter(fs::path path, std::string site, bool truncate, Readers readers)
    : path_(std::move(path)), site_(std::move(site)) {
  if (int error = injected(site_, "open")) fail("create", path_, error);
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (truncate ? O_TRUNC : O_EXCL),
               readers == Readers::owner ? 0600 : 0644);
  if (fd_ < 0) fail("create", path_, errno);
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void FileWriter::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    Fault fault = failpoint(cat(site_, ".write"));
    if (fault.action == FaultAction::fail_errno) fail("write", path_, fault.error);
    size_t want = fault.action == FaultAction::short_write ? (data.size() + 1) / 2 : data.size();
    ssize_t got = ::write(fd_, data.data(), want);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("write", path_, errno);
    const uint64_t before = std::exchange(bytes_, bytes_ + static_cast<uint64_t>(got));
    begin_writeback(fd_, before, bytes_);
    data = data.subspan(static_cast<size_t>(got));
  }
}

void FileWriter::sync() {
  if (int error = injected(site_, "fsync")) fail("fsync", path_, error);
  if (::fsync(fd_) != 0) fail("fsync", path_, errno);
}

void FileWriter::close() {
  int fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0 && errno != EINTR) fail("close", path_, errno);
}

void sync_directory(const fs::path& directory, std::string_view site) {
  fs::path place = directory.empty() ? fs::path(".") : directory;
  if (int error = injected(site, "dirsync")) fail("fsync", place, error);
  Descriptor fd(::open(place.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) fail("open", place, errno);
  if (::fsync(fd.get()) != 0 && errno != EINVAL) fail("fsync", place, errno);
}

void durable_rename(const fs::path& from, const fs::path& to, std::string_view site) {
  if (int error = injected(site, "rename")) fail("rename to", to, error);
  if (::rename(from.c_str(), to.c_str()) != 0) fail("rename to", to, errno);
  sync_directory(to.parent_path(), site);
}

void write_file_atomic(const fs::path& path, std::string_view content, std::string_view site,
                       Readers readers) {
  fs::path temporary = path;
  temporary += cat(".tmp-", ::getpid());
  try {
    FileWriter file(temporary, std::string(site), true, readers);
    file.write(content);
    file.sync();
    file.close();
    durable_rename(temporary, path, site);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail("create the folder", path, error.value());
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  Descriptor fd(open_without_pipes(path));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) fail("read", path, errno);
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* at = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) fail("map", path, errno);
  data_ = static_cast<const std::byte*>(at);
  guard_mapping(at, size_, path);
}

MappedFile::~MappedFile() {
  if (!data_) return;
  unguard_mapping(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::advise_random() const {
  if (data_) ::madvise(const_cast<std::byte*>(data_), size_, MADV_RANDOM);
}
void MappedFile::advise_sequential() const {
  if (data_) ::madvise(const_cast<std::byte*>(data_), size_, MADV_SEQUENTIAL);
}

fs::path program_directory() { return fs::read_symlink("/proc/self/exe").parent_path(); }

}  // namespace mtrain
