#include "secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "mtrain/base/authentication.h"
#include "mtrain/base/error.h"

namespace mtrain::mpi {

namespace {

namespace fs = std::filesystem;
constexpr size_t kOwnBytes = 32;  // of the file that is made
constexpr const char* kGiveOne = "set MTRAIN_JOB_SECRET to the same random text for all ranks (openssl rand -hex 32), or "
                                 "MTRAIN_JOB_SECRET_FILE to a file of mode 0600 that holds it";

struct File {
  explicit File(int fd_in) : fd(fd_in) {}
  ~File() {
    if (fd >= 0) ::close(fd);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd;
};

[[noreturn]] void fail(const std::string& what, int error) {
  throw Error(ErrorClass::config, cat(what, ": ", std::generic_category().message(error)), kGiveOne);
}

Secret checked(Secret secret) {
  while (!secret.bytes.empty() && (secret.bytes.back() == '\n' || secret.bytes.back() == '\r')) secret.bytes.pop_back();
  size_t size = secret.bytes.size();
  MT_USER_CHECK(size >= Secret::kLeastBytes && size <= Secret::kMostBytes, ErrorClass::config,
                cat("the job's secret in ", secret.source, " has ", size > Secret::kMostBytes ? "more than " : "",
                    std::min(size, Secret::kMostBytes), " characters, and ", Secret::kLeastBytes, " to ", Secret::kMostBytes,
                    " are wanted"),
                "take a random one: openssl rand -hex 32");
  return secret;
}

/// Absent when there is no such file.
std::optional<Secret> read_secret(const fs::path& path) {
  File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  Secret secret{.bytes = std::string(Secret::kMostBytes + 2, '\0'), .source = cat("the file ", path.string())};
  if (file.fd < 0 && errno == ENOENT) return std::nullopt;
  if (file.fd < 0) fail(cat("cannot read the job's secret in ", secret.source), errno);
  struct stat found {};
  if (::fstat(file.fd, &found) != 0) fail(cat("cannot read the job's secret in ", secret.source), errno);
  MT_USER_CHECK(S_ISREG(found.st_mode), ErrorClass::config, cat(secret.source, " is no regular file, and the job's secret is wanted"),
                kGiveOne);
  bool mine = found.st_uid == ::geteuid() || found.st_uid == 0;
  MT_USER_CHECK(mine && (found.st_mode & 077) == 0, ErrorClass::config,
                cat("the job's secret in ", secret.source, " can be read or changed by others (",
                    mine ? "" : "it belongs to another user, ", "mode ", (found.st_mode >> 6) & 7, (found.st_mode >> 3) & 7,
                    found.st_mode & 7, ")"),
                cat("let its user alone read it: chmod 600 ", path.string()));
  ssize_t got = ::read(file.fd, secret.bytes.data(), secret.bytes.size());
  if (got < 0) fail(cat("cannot read the job's secret in ", secret.source), errno);
  secret.bytes.resize(static_cast<size_t>(got));
  return checked(std::move(secret));
}

/// Whole or not at all, and never over one that somebody else has made meanwhile: a link fails then, a rename would not.
void make_secret(const fs::path& path) {
  std::string what = cat("cannot make the job's secret in the file ", path.string());
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) fail(what, error.value());
  fs::path temporary = path.string() + "." + random_hex(8);
  {
    File file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.fd < 0) fail(what, errno);
    std::string text = random_hex(kOwnBytes) + "\n";
    bool written = ::write(file.fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(file.fd) == 0;
    if (!written) error = {errno, std::generic_category()};
  }
  if (!error && ::link(temporary.c_str(), path.c_str()) != 0 && errno != EEXIST) error = {errno, std::generic_category()};
  ::unlink(temporary.c_str());
  if (error) fail(what, error.value());
}

fs::path own_file() {
  for (auto [variable, below] : {std::pair{"XDG_CONFIG_HOME", "mtrain"}, std::pair{"HOME", ".config/mtrain"}})
    if (const char* value = std::getenv(variable); value && fs::path(value).is_absolute())
      return fs::path(value) / below / "job_secret";
  throw Error(ErrorClass::config, "ranks have no secret to know each other by: neither MTRAIN_JOB_SECRET nor HOME is set", kGiveOne);
}

}  // namespace

Secret find_secret() {
  if (const char* text = std::getenv("MTRAIN_JOB_SECRET")) return checked({text, "MTRAIN_JOB_SECRET"});
  if (const char* given = std::getenv("MTRAIN_JOB_SECRET_FILE")) {
    auto secret = read_secret(given);
    MT_USER_CHECK(secret, ErrorClass::config, cat("MTRAIN_JOB_SECRET_FILE names ", given, ", which does not exist"), kGiveOne);
    return *std::move(secret);
  }
  fs::path path = own_file();
  if (auto secret = read_secret(path)) return *std::move(secret);
  make_secret(path);
  auto secret = read_secret(path);
  MT_USER_CHECK(secret, ErrorClass::config, cat("the job's secret in the file ", path.string(), " was removed while ranks started"),
                kGiveOne);
  return *std::move(secret);
}

}  // namespace mtrain::mpi
