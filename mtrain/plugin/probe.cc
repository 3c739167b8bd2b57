#include "mtrain/plugin/probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>

#include "mtrain/base/text.h"
#include "mtrain/plugin/registry.h"
#include "mtrain/plugin/stamp.h"

namespace mtrain {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kReport = 3;  // descriptor in the child
// What the child reports, one byte each; after kThrew follows the message of the exception.
constexpr char kOpened = 'o', kDone = '.', kThrew = '!';

/// The executable that implements kProbeCommand; empty if there is none.
fs::path program() {
  std::error_code error;
  for (const char* place : {"mtrain", "../bin/mtrain", "../../bin/mtrain"})
    if (fs::path path = program_directory() / place;
        ::access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path, error))
      return path;
  return {};
}

/// Starts the probe with no descriptors but the pipe, in its own process group, so that a
/// terminal's interrupt only reaches this process.
int start(const fs::path& program, const fs::path& plugin, int pipe_end, pid_t& child) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null",
                                     fd == STDIN_FILENO ? O_RDONLY : O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_end, kReport);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, usual;
  sigemptyset(&none);
  sigfillset(&usual);
  posix_spawnattr_setsigmask(
      &attributes,
      &none);  // a run blocks signals for its watching thread; the child must not inherit that
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::array<std::string, 3> words = {program.string(), kProbeCommand, plugin.string()};
  std::array<char*, 4> argv = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  int error = posix_spawn(&child, words[0].c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

/// Reads the child's report until its end marker, until it closes the pipe, until it exceeds the
/// limit, or until `end`.
std::string read_report(int pipe_end, Clock::time_point end) {
  constexpr size_t kMost = 4096;
  std::string received;
  while (received.size() < kMost && (received.empty() || received.back() != kDone)) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd wait{pipe_end, POLLIN, 0};
    int ready = left > 0 ? ::poll(&wait, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    std::array<char, 1024> buffer;
    ssize_t got = ::read(pipe_end, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    received.append(buffer.data(), static_cast<size_t>(got));
  }
  return received;
}

/// Waits for the child until `end`; returns false if it is still running.
bool ended(pid_t child, Clock::time_point end, int& status) {
  for (;;) {
    const pid_t got = ::waitpid(child, &status, WNOHANG);
    if (got == child || (got < 0 && errno != EINTR)) return true;
    if (Clock::now() >= end) return false;
    ::poll(nullptr, 0, 5);
  }
}

std::string fate(const std::string& received, bool late, int status, std::chrono::seconds limit) {
  const bool opened = received.starts_with(kOpened);
  const char* who = opened ? "its registration" : "a static initialiser";
  std::string_view rest = std::string_view(received).substr(opened ? 1 : 0);
  if (rest.ends_with(kDone) && !rest.starts_with(kThrew)) return {};
  if (rest.starts_with(kThrew))
    return cat(who, " ",
               printable(rest.substr(1, rest.size() - (rest.ends_with(kDone) ? 2 : 1)), 500));
  if (late) return cat(who, " did not end within ", limit.count(), " s");
  if (!WIFSIGNALED(status)) return cat(who, " ended the process with status ", WEXITSTATUS(status));
  return cat(who, " died of signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")");
}

void report(std::string_view words) {
  if (::write(kReport, words.data(), words.size()) < 0) ::_exit(1);
}

/// Runs a part of the probe, and reports what it throws.
template <class Act>
void report_throw(Act&& act) {
  std::string thrown;
  try {
    return act();
  } catch (const std::exception& error) {
    thrown = cat(kThrew, "threw: ", printable(error.what()), kDone);
  } catch (...) {
    thrown = cat(kThrew, "threw something that is not a std::exception", kDone);
  }
  report(thrown);
  ::_exit(0);
}

}  // namespace

std::string probe_plugin(const fs::path& path, std::chrono::seconds limit) {
  const fs::path helper = program();
  if (helper.empty()) return {};
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return cat("cannot be tested in a separate process: ", std::strerror(errno));
  pid_t child = 0;
  const int error = start(helper, path, ends[1], child);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    return cat("cannot be tested in a separate process: ", helper.string(),
               " does not start: ", std::strerror(error));
  }
  const auto end = Clock::now() + limit;
  const std::string received = read_report(ends[0], end);
  ::close(ends[0]);
  const bool done = received.ends_with(kDone);
  int status = 0;
  // The plugin may have closed the pipe and still run. A child that reported its end is killed as
  // well, since the plugin may have started threads and processes.
  const bool late = !done && !ended(child, end, status);
  if (done || late) {
    ::kill(-child, SIGKILL);
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  }
  return fate(received, late, status, limit);
}

void answer_probe(const fs::path& path) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  // The C library declares that dlopen never throws, and the compiler would drop the handlers
  // above; but exceptions of static initialisers do propagate through it.
  void* (*volatile open_library)(const char*, int) = ::dlopen;
  void* library = nullptr;
  report_throw([&] { library = open_library(path.c_str(), RTLD_NOW | RTLD_LOCAL); });
  if (library) {
    report(std::string(1, kOpened));
    try {
      Registry registry;
      using Register = void (*)(Registry&);
      if (auto enter = reinterpret_cast<Register>(::dlsym(library, kPluginEntryPoint)))
        enter(registry);
    } catch (...) {
      // The caller registers the plugin again, gets the same error and reports it.
    }
  }
  report(std::string(1, kDone));
  ::_exit(0);  // skips the plugin's destructors
}

}  // namespace mtrain
