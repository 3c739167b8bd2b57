// A mapped file that goes away under the process.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "mtrain/base/file.h"

using namespace mtrain;

namespace {

struct Death {
  int status = 0;
  std::string err;
};

/// Does something in a process of its own that has no other threads.
Death in_child(const std::function<void()>& act) {
  std::array<int, 2> ends;
  REQUIRE(::pipe(ends.data()) == 0);
  pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], 2);
    act();
    ::_exit(0);
  }
  ::close(ends[1]);
  Death out;
  std::array<char, 1024> buffer;
  for (ssize_t got; (got = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    out.err.append(buffer.data(), static_cast<size_t>(got));
  ::close(ends[0]);
  REQUIRE(::waitpid(child, &out.status, 0) == child);
  return out;
}

struct MadeFile {
  fs::path path = fs::temp_directory_path() / ("mtrain-mapping-" + std::to_string(::getpid()));
  MadeFile() { std::ofstream(path) << std::string(20000, 'x'); }
  ~MadeFile() { fs::remove(path); }
};

char last_byte(const MappedFile& file) {
  return static_cast<char>(*const_cast<const volatile std::byte*>(&file.bytes().back()));
}

}  // namespace

TEST_CASE("a mapped file that was made shorter ends the process with 18 and the file's name") {
  MadeFile file;
  Death death = in_child([&] {
    std::vector<MappedFile> many(300);  // more than one block of the table
    for (auto& one : many) one = MappedFile(file.path);
    many.erase(many.begin(), many.begin() + 100);
    fs::resize_file(file.path, 100);
    last_byte(many.back());
  });
  REQUIRE(WIFEXITED(death.status));
  CHECK(WEXITSTATUS(death.status) == 18);
  CHECK_MESSAGE(death.err.find("error[io]: cannot read " + file.path.string() +
                               ", which had 20000 bytes") != std::string::npos,
                death.err);
  CHECK_MESSAGE(death.err.find("\n  help: ") != std::string::npos, death.err);
}

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // which have handlers of their own
TEST_CASE("a bus error elsewhere stays one") {
  MadeFile file;
  Death death = in_child([&] {
    { MappedFile gone(file.path); }
    int fd = ::open(file.path.c_str(), O_RDONLY);
    void* at = ::mmap(nullptr, 20000, PROT_READ, MAP_SHARED, fd, 0);
    fs::resize_file(file.path, 100);
    (void)*(static_cast<volatile char*>(at) + 19999);
  });
  REQUIRE(WIFSIGNALED(death.status));
  CHECK(WTERMSIG(death.status) == SIGBUS);
  CHECK(death.err.find("error[io]") == std::string::npos);  // an emulator has lines of its own
}
#endif
