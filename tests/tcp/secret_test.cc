// Where the ranks' secret comes from.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "lab.h"
#include "mtrain/base/authentication.h"
#include "secret.h"

namespace mtrain::mpi {
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
  static constexpr const char* kNames[] = {"MTRAIN_JOB_SECRET", "MTRAIN_JOB_SECRET_FILE", "XDG_CONFIG_HOME", "HOME"};
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
  std::string own = write_secret(here.home / ".config/mtrain/job_secret", "the user's own secret\n", 0600);
  CHECK(find_secret().bytes == "the user's own secret");
  CHECK(has(find_secret().source, own));
  ::setenv("XDG_CONFIG_HOME", (here.home / "xdg").c_str(), 1);
  write_secret(here.home / "xdg/mtrain/job_secret", "the secret of XDG's folder", 0600);
  CHECK(find_secret().bytes == "the secret of XDG's folder");
  ::setenv("MTRAIN_JOB_SECRET_FILE", write_secret(here.home / "named", "the secret of a named file\r\n", 0400).c_str(), 1);
  CHECK(find_secret().bytes == "the secret of a named file");
  ::setenv("MTRAIN_JOB_SECRET", "the secret of a variable", 1);
  CHECK(find_secret().bytes == "the secret of a variable");
  CHECK(find_secret().source == "MTRAIN_JOB_SECRET");
}

TEST_CASE("tcp secret: the user's own is made once, for the user alone, by however many ranks at once") {
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
  CHECK(std::distance(fs::directory_iterator(here.home / ".config/mtrain"), {}) == 1);  // nothing is left of the others'
}

TEST_CASE("tcp secret: one that others may read, that is too short, or that is not there, is refused with what to do") {
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
  refused("has 9 characters, and 16 to 4096 are wanted");
  write_secret(own, std::string(4097, 'x'), 0600);
  refused("more than 4096");
  fs::remove(own);
  fs::create_directory(own);
  ::chmod(own.c_str(), 0700);
  refused("is no regular file");
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

TEST_CASE("tcp secret: a job of one rank needs none") {
  Surroundings here;
  ::unsetenv("HOME");
  ::unsetenv("WORLD_SIZE");
  ::unsetenv("RANK");
  CHECK(place_from_environment().size == 1);
}

}  // namespace
}  // namespace mtrain::mpi
