// Runs a command and waits for it; for system tests.
#pragma once
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "has.h"
#include "roots.h"

extern char** environ;

namespace mtrain::testing {

struct Outcome {
  int status = -1;  // the exit status, or 128 + the signal
  std::string out, err;
};

struct Command {
  std::vector<std::string> arguments;
  std::vector<std::string> environment = {};  // "NAME=value", added
  double signal_after = 0;                    // seconds; 0: never
  std::filesystem::path signal_file =
      {};  // the seconds count from the time when this file has this many bytes
  uintmax_t signal_bytes = 1;
  int signal = SIGKILL;
  /// Called when the process has stopped itself (MTRAIN_FAULT=site:nth:stop); the process continues
  /// afterwards. Not called if it ends first.
  std::function<void(pid_t)> while_stopped = {};
};

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A temporary folder, removed with the object.
class Scratch {
 public:
  explicit Scratch(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / (name + "-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Scratch() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

/// Whether a child process has ended; does not reap it.
inline bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

/// Waits until a file has this many bytes, for at most ten minutes or until `over`; returns at once
/// if the name is empty.
inline void await_content(const std::filesystem::path& file, uintmax_t bytes = 1,
                          const std::function<bool()>& over = {}) {
  std::error_code error;
  for (int i = 0; i < 300000 && !file.empty() && !(over && over()); ++i) {
    auto size = std::filesystem::file_size(file, error);
    if (!error && size >= bytes) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

/// Waits until a process has ended, for at most `seconds`.
inline void await_end(pid_t pid, double seconds) {
  auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    bool ended = has_ended(pid);
    std::chrono::duration<double> left = until - std::chrono::steady_clock::now();
    if (ended || left.count() <= 0) return;
    std::this_thread::sleep_for(std::min(left, std::chrono::duration<double>(0.002)));
  }
}

inline Outcome run(const Command& command) {
  static int serial = 0;
  std::string base = (std::filesystem::temp_directory_path() /
                      ("run-" + std::to_string(::getpid()) + "-" + std::to_string(++serial)))
                         .string();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, (base + ".out").c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, (base + ".err").c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  std::vector<char*> argv, env;
  for (const auto& argument : command.arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  for (const auto& variable : command.environment)
    env.push_back(const_cast<char*>(variable.c_str()));
  for (char** e = environ; *e; ++e) env.push_back(*e);
  env.push_back(nullptr);
  pid_t pid = 0;
  Outcome outcome;
  if (posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), env.data()) != 0) return outcome;
  posix_spawn_file_actions_destroy(&actions);
  if (command.signal_after > 0) {
    await_content(command.signal_file, command.signal_bytes, [pid] { return has_ended(pid); });
    await_end(pid, command.signal_after);
    ::kill(pid, command.signal);
  }
  int status = 0;
  auto wait = [&] {
    pid_t got = 0;
    while ((got = ::waitpid(pid, &status, WUNTRACED)) < 0 && errno == EINTR) {
    }
    return got == pid;
  };
  bool waited = wait();
  for (; waited && WIFSTOPPED(status); waited = wait()) {
    if (command.while_stopped)
      command.while_stopped(pid);
    else
      ::kill(pid, SIGKILL);  // nobody expected that
    ::kill(pid, SIGCONT);
  }
  if (!waited) return outcome;
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = slurp(base + ".out");
  outcome.err = slurp(base + ".err");
  ::unlink((base + ".out").c_str());
  ::unlink((base + ".err").c_str());
  return outcome;
}

/// The executable under test.
inline std::string mtrain_binary() { return (build_root() / "bin/mtrain").string(); }

inline Outcome cli(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
  arguments.insert(arguments.begin(), mtrain_binary());
  return run({.arguments = std::move(arguments), .environment = std::move(environment)});
}

/// A recipe small enough to train in a second, on data that needs no file.
inline std::string tiny_recipe() {
  return "model: {type: llama, layers: 2, hidden_size: 32, heads: 4, kv_heads: 2, ffn_hidden_size: "
         "80, "
         "seq_length: 32}\n"
         "dataset: mock\n"
         "train: {steps: 40, micro_batch_size: 2, global_batch_size: 4}\n"
         "optimizer: {lr: 2e-3}\n"
         "scheduler: {warmup_steps: 4}\n"
         "checkpoint: {interval: 5}\n"
         "validation: {interval: 20, steps: 1}\n"
         "logger: {tensorboard: false}\n";
}

inline std::string digest(const std::filesystem::path& run_folder) {
  Outcome outcome = cli({"checkpoint", "digest", run_folder.string()});
  return outcome.status == 0 ? outcome.out
                             : "status " + std::to_string(outcome.status) + ": " + outcome.err;
}

}  // namespace mtrain::testing
