// Where the ranks' secret comes from.
#include "plugins/comm/tcp/secret.h"

#include <doctest/doctest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "fixture.h"
#include "mtrain/base/authentication.h"

namespace mtrain::tcp {
namespace {

namespace fs = std::filesystem;

/// The variables that say where a secret is, for the time of a test, and a folder to be home.
struct Surroundings {
  Surroundings() {
    for (const char* name : kNames) {
      const char* value = std::getenv(name);
      before.push_back(value ? std::optional<std::string>(value) : std::nullopt);
      ::unsetenv(name);
    }
    fs::create_directories(home);
    ::setenv("HOME", home.c_str(), 1);
  }
  ~Surroundings() {
    for (size_t i = 0; i < before.size(); ++i)
      before[i] ? ::setenv(kNames[i], before[i]->c_str(), 1) : ::unsetenv(kNames[i]);
    fs::remove_all(home);
  }
  static constexpr const char* kNames[] = {"MTRAIN_JOB_SECRET", "MTRAIN_JOB_SECRET_FILE",
                                           "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "HOME"};
  std::vector<std::optional<std::string>> before;
  fs::path home = fs::temp_directory_path() / cat("mtrain-secret-", random_hex(8));
};

std::string write_secret(const fs::path& path, const std::string& text, mode_t mode) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
  ::chmod(path.c_str(), mode);
  return path.string();
}

TEST_CASE("tcp secret: the variable, else the file it names, else the user's own") {
  Surroundings here;
  std::string own =
      write_secret(here.home / ".config/mtrain/job_secret", "the user's own secret\n", 0600);
  CHECK(find_secret().bytes == "the user's own secret");
  CHECK(has(find_secret().source, own));
  ::setenv("XDG_CONFIG_HOME", (here.home / "xdg").c_str(), 1);
  write_secret(here.home / "xdg/mtrain/job_secret", "the secret of XDG's folder", 0600);
  CHECK(find_secret().bytes == "the secret of XDG's folder");
  ::setenv("MTRAIN_JOB_SECRET_FILE",
           write_secret(here.home / "named", "the secret of a named file\r\n", 0400).c_str(), 1);
  CHECK(find_secret().bytes == "the secret of a named file");
  ::setenv("MTRAIN_JOB_SECRET", "the secret of a variable", 1);
  CHECK(find_secret().bytes == "the secret of a variable");
  CHECK(find_secret().source == "MTRAIN_JOB_SECRET");
}

TEST_CASE(
    "tcp secret: the user's own is made once, for the user alone, by however many ranks at once") {
  Surroundings here;
  std::vector<std::string> found(8);
  std::vector<std::thread> ranks;
  for (std::string& secret : found) ranks.emplace_back([&secret] { secret = find_secret().bytes; });
  for (std::thread& rank : ranks) rank.join();
  for (const std::string& secret : found) CHECK(secret == found[0]);
  CHECK(found[0].size() == 64);
  struct stat status {};
  REQUIRE(::stat((here.home / ".config/mtrain/job_secret").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  CHECK(std::distance(fs::directory_iterator(here.home / ".config/mtrain"), {}) ==
        1);  // nothing is left of the others'
}

TEST_CASE(
    "tcp secret: one that others may read, that is too short, or that is not there, is refused "
    "with what to do") {
  Surroundings here;
  auto refused = [](const std::string& part) {
    std::string message = message_of(ErrorClass::config, [] { find_secret(); });
    CHECK_MESSAGE(has(message, part), message);
  };
  fs::path own = here.home / ".config/mtrain/job_secret";
  for (mode_t mode : {0644, 0640, 0620, 0604}) {
    write_secret(own, "a secret that is no longer one", mode);
    refused("chmod 600 " + own.string());
  }
  write_secret(own, "too short", 0600);
  refused("has 9 characters, but 16 to 4096 are required");
  write_secret(own, std::string(4097, 'x'), 0600);
  refused("more than 4096");
  fs::remove(own);
  fs::create_directory(own);
  ::chmod(own.c_str(), 0700);
  refused("is not a regular file");
  ::setenv("MTRAIN_JOB_SECRET_FILE", "/nowhere/secret", 1);
  refused("/nowhere/secret, which does not exist");
  ::setenv("MTRAIN_JOB_SECRET", "short", 1);
  refused("MTRAIN_JOB_SECRET has 5 characters");
  ::unsetenv("MTRAIN_JOB_SECRET");
  ::unsetenv("MTRAIN_JOB_SECRET_FILE");
  ::setenv("HOME", "/proc/nothing/can/be/made/here", 1);
  refused("set MTRAIN_JOB_SECRET to the same random text");
  ::unsetenv("HOME");
  refused("neither MTRAIN_JOB_SECRET nor HOME is set");
}

TEST_CASE(
    "tcp secret: a file that is given may be its group's to read, as in a Kubernetes secret "
    "volume") {
  Surroundings here;
  for (mode_t mode : {0400, 0440, 0600, 0640}) {
    fs::path given = here.home / cat("given", mode);
    ::setenv("MTRAIN_JOB_SECRET_FILE", write_secret(given, "a secret of a volume", mode).c_str(),
             1);
    CHECK(find_secret().bytes == "a secret of a volume");
  }
  for (mode_t mode : {0660, 0644, 0604, 0602, 0601}) {
    fs::path given = here.home / cat("refused", mode);
    ::setenv("MTRAIN_JOB_SECRET_FILE", write_secret(given, "a secret of a volume", mode).c_str(),
             1);
    std::string message = message_of(ErrorClass::config, [] { find_secret(); });
    CHECK_MESSAGE(has(message, "can be read or changed by others"), message);
    CHECK_MESSAGE(has(message, "chmod 440 " + given.string()), message);
  }
}

TEST_CASE("tcp secret: ranks of one machine need no home") {
  Surroundings here;
  fs::path runtime = here.home / "runtime";
  fs::create_directory(runtime);
  ::setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
  ::setenv("HOME", "/proc/nothing/can/be/made/here", 1);
  std::string elsewhere = message_of(ErrorClass::config, [] { find_secret(); });
  CHECK_MESSAGE(
      has(elsewhere, "cannot create the job's secret in the file /proc/nothing/can/be/made/here"),
      elsewhere);
  CHECK(fs::is_empty(runtime));
  Secret made = find_secret(true);
  CHECK(has(made.source, (runtime / "mtrain/job_secret").string()));
  CHECK(find_secret(true).bytes == made.bytes);
  struct stat status {};
  REQUIRE(::stat((runtime / "mtrain").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
  ::unsetenv("HOME");
  CHECK(find_secret(true).bytes == made.bytes);
  ::setenv("HOME", here.home.c_str(), 1);  // a home goes before
  CHECK(has(find_secret(true).source, (here.home / ".config/mtrain/job_secret").string()));
}

TEST_CASE("tcp secret: a folder that somebody else may have put there is not believed") {
  Surroundings here;
  fs::path runtime = here.home / "runtime", folder = runtime / "mtrain",
           other = here.home / "other";
  ::setenv("HOME", "/proc/nothing/can/be/made/here", 1);
  ::setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
  write_secret(other / "job_secret", "a secret that somebody knows", 0600);
  ::chmod(other.c_str(), 0700);
  const fs::path shared = cat("/dev/shm/mtrain-", ::geteuid());
  const bool was_there = fs::exists(shared);
  fs::create_directory(runtime);
  fs::create_directory_symlink(other, folder);
  CHECK(find_secret(true).bytes != "a secret that somebody knows");
  fs::remove(folder);
  write_secret(folder / "job_secret", "a secret that somebody knows", 0600);
  ::chmod(folder.c_str(), 0770);
  CHECK(find_secret(true).bytes != "a secret that somebody knows");
  ::chmod(folder.c_str(), 0700);
  CHECK(find_secret(true).bytes == "a secret that somebody knows");
  if (!was_there) fs::remove_all(shared);
}

TEST_CASE("tcp secret: a file system without links keeps the user's own as well") {
  Surroundings here;
  pid_t pid = ::fork();
  if (pid == 0) {
    sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                             BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_linkat, 0, 1),
                             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    sock_fprog filter{.len = 4, .filter = program};
    bool installed = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                     ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
    if (!installed) ::_exit(77);
    ::_exit(find_secret().bytes == find_secret().bytes ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    MESSAGE("this machine does not let a process refuse itself a call");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(find_secret().bytes.size() == 64);
  CHECK(std::distance(fs::directory_iterator(here.home / ".config/mtrain"), {}) == 1);
}

TEST_CASE("tcp secret: a job of one rank needs none") {
  Surroundings here;
  ::unsetenv("HOME");
  ::unsetenv("WORLD_SIZE");
  ::unsetenv("RANK");
  CHECK(rank_environment().size == 1);
}

}  // namespace
}  // namespace mtrain::tcp
