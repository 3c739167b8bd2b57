#include "secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "mtrain/base/authentication.h"
#include "mtrain/base/error.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/base/text.h"

namespace mtrain::tcp {

namespace {

namespace fs = std::filesystem;
constexpr size_t kOwnBytes = 32;  // size of a generated secret
constexpr const char* kName = "job_secret";
// Mode bits that are not allowed: for the user's own file, and for a given file, which Kubernetes
// makes readable for a group.
constexpr mode_t kNotOwn = 077, kNotGiven = 027;
constexpr const char* kGiveOne =
    "set MTRAIN_JOB_SECRET to the same random text for all ranks (openssl rand -hex 32), or "
    "MTRAIN_JOB_SECRET_FILE to a file of mode 0600 or 0440 that contains it";

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
  throw Error(ErrorClass::config, cat(what, ": ", std::generic_category().message(error)),
              kGiveOne);
}

Secret checked(Secret secret) {
  while (!secret.bytes.empty() && (secret.bytes.back() == '\n' || secret.bytes.back() == '\r'))
    secret.bytes.pop_back();
  size_t size = secret.bytes.size();
  MT_USER_CHECK(
      size >= Secret::kLeastBytes && size <= Secret::kMostBytes, ErrorClass::config,
      cat("the job's secret in ", secret.source, " has ",
          size > Secret::kMostBytes ? "more than " : "", std::min(size, Secret::kMostBytes),
          " characters, but ", Secret::kLeastBytes, " to ", Secret::kMostBytes, " are required"),
      "use a random one: openssl rand -hex 32");
  return secret;
}

/// Absent if there is no such file. `refused`: the mode bits that it must not have.
std::optional<Secret> read_secret(int folder, const fs::path& name, const fs::path& shown,
                                  mode_t refused) {
  File file(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  Secret secret{.bytes = std::string(Secret::kMostBytes + 2, '\0'),
                .source = cat("the file ", shown.string())};
  if (file.fd < 0 && errno == ENOENT) return std::nullopt;
  if (file.fd < 0) fail(cat("cannot read the job's secret in ", secret.source), errno);
  struct stat found {};
  if (::fstat(file.fd, &found) != 0)
    fail(cat("cannot read the job's secret in ", secret.source), errno);
  MT_USER_CHECK(S_ISREG(found.st_mode), ErrorClass::config,
                cat(secret.source, " is not a regular file, but must contain the job's secret"),
                kGiveOne);
  bool mine = found.st_uid == ::geteuid() || found.st_uid == 0;
  MT_USER_CHECK(
      mine && (found.st_mode & refused) == 0, ErrorClass::config,
      cat("the job's secret in ", secret.source, " can be read or changed by others (",
          mine ? "" : "it belongs to another user, ", "mode ", (found.st_mode >> 6) & 7,
          (found.st_mode >> 3) & 7, found.st_mode & 7, ")"),
      refused == kNotOwn
          ? cat("make it readable only by its user: chmod 600 ", shell_word(shown.string()),
                "; if the file system has no file modes (CIFS, WSL), set MTRAIN_JOB_SECRET")
          : cat("make it readable only by its user and group: chmod 440 ",
                shell_word(shown.string()), "; for a Kubernetes secret volume: defaultMode: 0440"));
  ssize_t got = ::read(file.fd, secret.bytes.data(), secret.bytes.size());
  if (got < 0) fail(cat("cannot read the job's secret in ", secret.source), errno);
  secret.bytes.resize(static_cast<size_t>(got));
  return checked(std::move(secret));
}

std::string last_error() { return std::generic_category().message(errno); }

/// Writes a secret to a new file. Returns the reason on failure, else an empty string.
std::string write_secret(int folder, const std::string& name) {
  File file(::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.fd < 0) return last_error();
  struct stat made {};
  std::string why, text = random_hex(kOwnBytes) + "\n";
  if (::fstat(file.fd, &made) != 0)
    why = last_error();
  else if ((made.st_mode & kNotOwn) != 0)
    why = "this file system has no file modes, so others may read it";
  else if (::write(file.fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
           ::fsync(file.fd) != 0)
    why = last_error();
  if (!why.empty()) ::unlinkat(folder, name.c_str(), 0);
  return why;
}

/// Atomic, and never overwrites a file that another process has created meanwhile: link() fails in
/// that case, rename() would not.
std::string make_secret(int folder) {
  std::string temporary = cat(kName, ".", random_hex(8));
  if (std::string why = write_secret(folder, temporary); !why.empty()) return why;
  bool made = ::linkat(folder, temporary.c_str(), folder, kName, 0) == 0 || errno == EEXIST;
  int error = errno;
  ::unlinkat(folder, temporary.c_str(), 0);
  if (made) return "";
  if (error != EPERM && error != ENOTSUP && error != EOPNOTSUPP)
    return std::generic_category().message(error);
  std::string why = write_secret(folder, kName);  // a file system without links
  return ::faccessat(folder, kName, F_OK, 0) == 0 ? "" : why;
}

/// A possible folder of the user's own secret.
struct Folder {
  fs::path path;
  bool among_others =
      false;  // users who can write to the parent folder could have created this one
};

/// The folder, created if it is missing; closed, with the reason in `why`, if it cannot be used.
int open_folder(const Folder& folder, std::string& why) {
  std::error_code error;
  if (!folder.among_others) fs::create_directories(folder.path.parent_path(), error);
  if (!error && ::mkdir(folder.path.c_str(), 0700) != 0 && errno != EEXIST)
    error = {errno, std::generic_category()};
  int fd = error ? -1
                 : ::open(folder.path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC |
                                                   (folder.among_others ? O_NOFOLLOW : 0));
  if (fd < 0) {
    why = error ? error.message() : last_error();
    return fd;
  }
  struct stat found {};
  bool private_one =
      ::fstat(fd, &found) == 0 && found.st_uid == ::geteuid() && (found.st_mode & kNotOwn) == 0;
  if (!folder.among_others || private_one) return fd;
  why = "the folder belongs to another user, or others may use it";
  ::close(fd);
  return -1;
}

/// The user's own secret, created if it is missing. Absent, with the reason in `why`, if that
/// fails.
std::optional<Secret> own_secret(const Folder& where, std::string& why) {
  File folder(open_folder(where, why));
  if (folder.fd < 0) return std::nullopt;
  fs::path shown = where.path / kName;
  struct stat found {};
  bool there = ::fstatat(folder.fd, kName, &found, 0) == 0;
  if (!there && errno != ENOENT)
    why = last_error();
  else if (!there)
    why = make_secret(folder.fd);
  if (!why.empty()) return std::nullopt;
  // On a file system without links the file may exist before its content is written.
  auto empty = [&] {
    return ::fstatat(folder.fd, kName, &found, 0) == 0 && S_ISREG(found.st_mode) &&
           found.st_size == 0;
  };
  for (int tries = 0; tries < 250 && empty(); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  auto secret = read_secret(folder.fd, kName, shown, kNotOwn);
  MT_USER_CHECK(
      secret, ErrorClass::config,
      cat("the job's secret in the file ", shown.string(), " was removed while ranks started"),
      kGiveOne);
  return secret;
}

std::optional<fs::path> folder_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value && fs::path(value).is_absolute() ? std::optional<fs::path>(value) : std::nullopt;
}

std::vector<Folder> own_folders(bool here_only) {
  std::vector<Folder> folders;
  if (auto config = folder_of("XDG_CONFIG_HOME"))
    folders.push_back({*config / "mtrain"});
  else if (auto home = folder_of("HOME"))
    folders.push_back({*home / ".config/mtrain"});
  if (!here_only) return folders;
  // Not every user of a container has a home folder.
  const std::string name = cat("mtrain-", ::geteuid());
  if (auto runtime = folder_of("XDG_RUNTIME_DIR")) folders.push_back({*runtime / "mtrain", true});
  folders.push_back({fs::path("/dev/shm") / name, true});
  std::error_code error;
  if (fs::path temporary = fs::temp_directory_path(error); !error)
    folders.push_back({temporary / name, true});
  return folders;
}

}  // namespace

Secret find_secret(bool here_only) {
  if (const char* text = std::getenv("MTRAIN_JOB_SECRET"))
    return checked({text, "MTRAIN_JOB_SECRET"});
  if (const char* given = std::getenv("MTRAIN_JOB_SECRET_FILE")) {
    auto secret = read_secret(AT_FDCWD, given, given, kNotGiven);
    MT_USER_CHECK(secret, ErrorClass::config,
                  cat("MTRAIN_JOB_SECRET_FILE names ", given, ", which does not exist"), kGiveOne);
    return *std::move(secret);
  }
  std::vector<std::string> tried;
  for (const Folder& folder : own_folders(here_only)) {
    std::string why;
    if (auto secret = own_secret(folder, why)) return *std::move(secret);
    tried.push_back(cat((folder.path / kName).string(), ": ", why));
  }
  throw Error(ErrorClass::config,
              tried.empty()
                  ? "ranks have no secret to authenticate each other: neither MTRAIN_JOB_SECRET "
                    "nor HOME is set"
                  : cat("cannot create the job's secret in the file ", join(tried, "; in ")),
              kGiveOne);
}

}  // namespace mtrain::tcp
