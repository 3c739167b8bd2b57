// Jobs of several processes, for the tests in this folder: starting them, finding their ranks among
// the system's processes, and checking that no process is left.
#pragma once
#include <dirent.h>

#include <future>
#include <optional>

#include "../process.h"
#include "roots.h"

namespace mtrain::testing {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// The mpirun to use; prints a message if there is none.
inline std::optional<std::string> mpirun() {
  if (!fs::exists(build_root() / "lib/mtrain/plugins/comm_mpi.so")) return std::nullopt;
  std::istringstream path(std::getenv("PATH") ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(path, folder, ':');)
    if (::access((folder + "/mpirun").c_str(), X_OK) == 0) return folder + "/mpirun";
  return std::nullopt;
}
#define MT_NEEDS_MPI()                                             \
  do {                                                             \
    if (!mpirun()) {                                               \
      MESSAGE("skipped: no mpirun in the PATH, or no mpi plugin"); \
      return;                                                      \
    }                                                              \
  } while (false)

/// Processes with `mark` among their words that are rank `rank` of a job; of any rank, and of none,
/// for -1.
inline std::vector<pid_t> processes(const std::string& mark, int rank = -1) {
  std::vector<pid_t> found;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator("/proc", gone)) {
    pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || pid == ::getpid() || !has(slurp(entry.path() / "cmdline"), mark)) continue;
    if (rank >= 0) {
      std::string environment = '\0' + slurp(entry.path() / "environ");
      std::string wanted = std::string("\0OMPI_COMM_WORLD_RANK=", 22) + std::to_string(rank) + '\0';
      if (!has(environment, wanted) || !has(slurp(entry.path() / "cmdline"), "mtrain")) continue;
    }
    found.push_back(pid);
  }
  return found;
}

/// Whether no process with `mark` is left, within two minutes.
inline bool all_gone(const std::string& mark) {
  for (int i = 0; i < 12000; ++i) {
    if (processes(mark).empty()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

/// Starts one rank per process like mpirun, each with a separate environment: `for_rank` is shell
/// text.
inline std::vector<std::string> mpirun_command(int ranks, const std::string& for_rank,
                                               const std::vector<std::string>& words) {
  std::vector<std::string> command = {*mpirun(), "--oversubscribe",    "--bind-to", "none",
                                      "-n",      std::to_string(ranks)};
  if (::geteuid() == 0) command.emplace_back("--allow-run-as-root");
  command.insert(command.end(), {"/bin/sh", "-c",
                                 "rank=$OMPI_COMM_WORLD_RANK; " + for_rank + "; exec \"$0\" \"$@\"",
                                 mtrain_binary()});
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

/// A running job.
class RunningJob {
 public:
  explicit RunningJob(Command command)
      : outcome_(std::async(std::launch::async, [command] {
          Outcome out = run(command);
          return std::pair{out, Clock::now()};
        })) {}
  bool ended() const {
    return outcome_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  /// Sends `signal` to the process and returns the time.
  static Clock::time_point strike(pid_t pid, int signal) {
    ::kill(pid, signal);
    return Clock::now();
  }
  /// Waits for the end; returns the outcome and the seconds since `begin`. Processes with `mark`
  /// are killed after ten minutes.
  std::pair<Outcome, double> await(Clock::time_point begin, const std::string& mark) {
    if (outcome_.wait_for(std::chrono::minutes(10)) != std::future_status::ready)
      for (pid_t pid : processes(mark)) ::kill(pid, SIGKILL);
    auto [out, end] = outcome_.get();
    return {out, std::chrono::duration<double>(end - begin).count()};
  }

 private:
  std::future<std::pair<Outcome, Clock::time_point>> outcome_;
};

/// A fast recipe for three ranks, which a failpoint can slow down.
inline std::string job_recipe() {
  return "model: {type: llama, layers: 2, hidden_size: 32, heads: 4, kv_heads: 2, ffn_hidden_size: "
         "80, "
         "seq_length: 32}\n"
         "dataset: mock\n"
         "train: {steps: 60, micro_batch_size: 1, global_batch_size: 6}\n"
         "optimizer: {lr: 2e-3}\n"
         "scheduler: {warmup_steps: 4}\n"
         "checkpoint: {interval: 10}\n"
         "validation: {interval: 25, steps: 1}\n"
         "run: {threads: 1}\n"
         "dist: {silence_seconds: 120}\n"  // ranks of a busy machine are late, and not dead
         "logger: {tensorboard: false}\n";
}

}  // namespace mtrain::testing
