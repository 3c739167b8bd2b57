#include "mtrain/plugin/probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <iterator>
#include <optional>

#include "mtrain/base/text.h"

namespace mtrain {
namespace {

constexpr int kPatienceMs = 20000;

// A child of a process with several threads may find locks held by threads that it does not have.
bool single_threaded() {
  std::error_code error;
  fs::directory_iterator tasks("/proc/self/task", error), end;
  return !error && std::distance(tasks, end) == 1;
}

[[noreturn]] void open_and_report(const fs::path& path, int report) {
  rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  int nowhere = ::open("/dev/null", O_RDWR);
  if (nowhere >= 0) {
    ::dup2(nowhere, STDIN_FILENO);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
  }
  // The C library declares dlopen as one that never throws, and the compiler would drop the handlers below;
  // but what a static initialiser throws does come through it.
  void* (*volatile open_library)(const char*, int) = ::dlopen;
  std::string word = "+";
  try {
    open_library(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  } catch (const std::exception& error) {
    word = cat("threw: ", printable(error.what()));
  } catch (...) {
    word = "threw something that is no std::exception";
  }
  ssize_t sent = ::write(report, word.data(), word.size());
  ::_exit(sent > 0 ? 0 : 1);
}

/// The child's word, "" when it ended without one; absent when it took too long.
std::optional<std::string> word_of(int report) {
  pollfd wait{report, POLLIN, 0};
  int ready;
  do ready = ::poll(&wait, 1, kPatienceMs);
  while (ready < 0 && errno == EINTR);
  if (ready == 0) return std::nullopt;
  std::array<char, 1024> buffer;
  ssize_t got;
  do got = ::read(report, buffer.data(), buffer.size());
  while (got < 0 && errno == EINTR);
  return std::string(buffer.data(), got > 0 ? static_cast<size_t>(got) : 0);
}

}  // namespace

std::string probe_library(const fs::path& path) {
  if (!single_threaded()) return {};
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    open_and_report(path, ends[1]);
  }
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return {};
  }
  std::optional<std::string> word = word_of(ends[0]);
  ::close(ends[0]);
  if (!word) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!word) return cat("a static initialiser did not end within ", kPatienceMs / 1000, " s");
  if (*word == "+") return {};
  if (!word->empty()) return cat("a static initialiser ", *word);
  if (!WIFSIGNALED(status))
    return cat("a static initialiser ended the process with status ", WEXITSTATUS(status));
  return cat("a static initialiser died of signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)),
             ")");
}

}  // namespace mtrain
