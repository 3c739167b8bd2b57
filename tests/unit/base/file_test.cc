// What is read must be a file, and what is written can be for its owner alone.
#include "mtrain/base/file.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

using namespace mtrain;

namespace {

struct Folder {
  fs::path path = fs::temp_directory_path() / cat("mtrain_file_test_", ::getpid());
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

std::string fault(const fs::path& path, bool mapped) {
  try {
    if (mapped)
      MappedFile{path};
    else
      read_file(path);
    return "";
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::io);
    return error.message();
  }
}

mode_t mode_of(const fs::path& path) {
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

}  // namespace

TEST_CASE("a pipe, a device and a folder are refused at once where a file is wanted") {
  Folder folder;
  fs::path pipe = folder.path / "pipe", link = folder.path / "link", file = folder.path / "file";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);  // nobody will ever write to it
  fs::create_symlink(pipe, link);
  std::ofstream(file) << "text";
  for (bool mapped : {false, true}) {
    for (const fs::path& path : {pipe, link, fs::path("/dev/zero"), fs::path("/dev/null")}) {
      CAPTURE(path.string());
      CHECK(fault(path, mapped).find("wanted a regular file, got a device, pipe or socket") !=
            std::string::npos);
    }
    CHECK(fault(folder.path, mapped).find("Is a directory") != std::string::npos);
    CHECK(fault(folder.path / "absent", mapped).find("No such file") != std::string::npos);
    CHECK(fault(file, mapped) == "");
  }
}

TEST_CASE("a pipe that the shell opened is read by its descriptor, and cannot be mapped") {
  for (const char* folder : {"/dev/fd/", "/proc/self/fd/"}) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    REQUIRE(::write(ends[1], "text", 4) == 4);
    ::close(ends[1]);
    const fs::path path = folder + std::to_string(ends[0]);
    CHECK(fault(path, true).find("wanted a regular file, got a device, pipe or socket") !=
          std::string::npos);
    CHECK(read_file(path) == "text");
    ::close(ends[0]);
    CHECK(fault(path, false).find("No such file") != std::string::npos);
  }
}

TEST_CASE("a file for its owner is never readable by others, whatever stood in its place") {
  Folder folder;
  fs::path file = folder.path / "resolved.yaml", open = folder.path / "metrics";
  mode_t before = ::umask(0022);
  std::ofstream(file) << "old";
  REQUIRE(::chmod(file.c_str(), 0644) == 0);
  write_file_atomic(file, "new", "file", Readers::owner);
  CHECK(mode_of(file) == 0600);
  CHECK(read_file(file) == "new");
  write_file_atomic(open, "new");
  CHECK(mode_of(open) == 0644);
  ::umask(before);
}
