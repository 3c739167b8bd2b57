#include "launch.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "cores.h"
#include "local_ranks.h"
#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/base/text_stream.h"
#include "mtrain/comm/launcher.h"
#include "mtrain/train/signals.h"

namespace mtrain {
namespace {

constexpr std::string_view kStarted = "--started-by-nproc=";

/// The arguments of the command line without --nproc and its value.
std::vector<std::string> without_nproc(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--nproc")
      ++i;
    else if (!words[i].starts_with("--nproc="))
      out.push_back(words[i]);
  }
  return out;
}

/// The command line of a rank: the typed words, so that messages number them as the user does, and
/// after them `added` settings.
std::vector<std::string> words_for_ranks(const std::vector<std::string>& typed, size_t added) {
  std::vector<std::string> out = {cat(kStarted, added)};
  out.insert(out.end(), typed.begin(), typed.end());
  return out;
}

sigset_t handed_on() {
  sigset_t set = stop_signals();
  sigaddset(&set, SIGCHLD);
  return set;
}

[[noreturn]] void become(std::vector<std::string>& command, pid_t parent) {
  // An interrupt from the terminal reaches only this program, which then lets the ranks save;
  // mpirun would end them at once.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // ends the job when this program is killed
  if (::getppid() != parent) ::_exit(1);
  sigset_t set = handed_on();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  if (int nothing = ::open("/dev/null", O_RDONLY); nothing >= 0)
    ::dup2(nothing, 0);  // reading a terminal would stop it
  std::vector<char*> argv;
  for (auto& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  std::fprintf(stderr, "mtrain: cannot run %s: %s\n", argv[0], std::strerror(errno));
  ::_exit(127);
}

/// Waits for the launcher and forwards signals; returns its wait status and the first signal (0:
/// none).
int await(pid_t child, int& received_signal) {
  sigset_t set = handed_on();
  StopRequests requests;
  for (;;) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) return status;
    int signal = sigtimedwait(&set, nullptr, &StopRequests::kTick);
    if (signal <= 0) requests.tick();
    if (signal <= 0 || signal == SIGCHLD) continue;
    // mpirun forwards SIGUSR1 unchanged; at SIGTERM it gives the ranks only a second.
    StopRequests::Meaning meaning = requests.take(signal);
    if (meaning == StopRequests::Meaning::stop) received_signal = signal;
    if (meaning == StopRequests::Meaning::stop) ::kill(child, SIGUSR1);
    if (meaning == StopRequests::Meaning::end_at_once) ::kill(child, SIGTERM);
  }
}

}  // namespace

std::vector<std::string> take_rank_words(std::vector<std::string>& arguments) {
  if (arguments.empty() || !arguments.front().starts_with(kStarted)) return arguments;
  const auto added = static_cast<size_t>(std::atoi(arguments.front().c_str() + kStarted.size()));
  arguments.erase(arguments.begin());
  std::vector<std::string> typed = arguments;
  typed.resize(typed.size() - std::min(typed.size(), added));
  arguments = without_nproc(arguments);
  return typed;
}

std::string find_program(const std::vector<std::string>& names) {
  const char* path = std::getenv("PATH");
  for (const auto& folder : split(path ? path : "", ':'))
    for (const auto& name : names)
      if (fs::path file = fs::path(folder) / name; ::access(file.c_str(), X_OK) == 0)
        return file.string();
  return {};
}

std::string find_mpirun() {
  const char* program = std::getenv("MTRAIN_MPIRUN");
  return program ? program : find_program({"mpirun", "mpiexec"});
}

std::string version_of(const std::string& program) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return {};
  pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe[1], 1);
    ::dup2(pipe[1], 2);
    ::execl(program.c_str(), program.c_str(), "--version", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(pipe[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; child > 0 && (got = ::read(pipe[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  ::close(pipe[0]);
  if (child > 0) ::waitpid(child, nullptr, 0);
  return text;
}

std::vector<std::string> launch_command(const std::string& mpirun, const std::string& version,
                                        int64_t nproc, int cores, bool as_root,
                                        const std::vector<std::string>& words) {
  std::vector<std::string> command = {mpirun, "-n", std::to_string(nproc)};
  auto add = [&](std::initializer_list<std::string> more) { command.insert(command.end(), more); };
  if (version.find("Open MPI") != std::string::npos) {
    if (as_root) add({"--allow-run-as-root"});
    if (nproc <= cores)
      add({"--map-by", cat("slot:PE=", cores / nproc), "--bind-to", "core"});
    else
      add({"--oversubscribe", "--bind-to", "none"});
  } else if (version.find("HYDRA") != std::string::npos && nproc <= cores) {
    add({"-bind-to", cat("core:", cores / nproc)});
  }
  add({(program_directory() / "mtrain").string()});
  command.insert(command.end(), words.begin(), words.end());
  add({cat("dist.nproc=", nproc), "dist.comm=mpi"});
  return command;
}

int launch_mpi_ranks(const Cli& cli, int64_t nproc) {
  std::string mpirun = find_mpirun();
  MT_USER_CHECK(!mpirun.empty(), ErrorClass::usage,
                "--nproc with dist.comm=mpi needs mpirun, which is not in the PATH",
                "install Open MPI (tools/setup.sh --mpi), or leave dist.comm out: then mtrain "
                "starts the ranks itself");
  std::vector<std::string> command =
      launch_command(mpirun, version_of(mpirun), nproc, physical_cores(), ::geteuid() == 0,
                     words_for_ranks(cli.words, 2));
  std::cout.flush();
  sigset_t set = handed_on(), before;
  sigprocmask(SIG_BLOCK, &set, &before);
  pid_t self = ::getpid(), child = ::fork();
  MT_USER_CHECK(child >= 0, ErrorClass::io,
                cat("no process can be started: ", std::strerror(errno)), "");
  if (child == 0) become(command, self);
  int received_signal = 0, status = await(child, received_signal);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
  if (received_signal != 0) return 128 + received_signal;
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code <= 128) return code;
  write_standard_error(
      cat(headline(name(ErrorClass::peer),
                   cat(WIFSIGNALED(status) ? "mpirun" : "a rank", " was ended by signal ",
                       code - 128, " (", strsignal(code - 128), ")")),
          "  help: see above for what is known; the same command continues from the newest "
          "checkpoint\n"));
  return static_cast<int>(ErrorClass::peer);
}

int launch_ranks(const Cli& cli, int64_t nproc, const std::optional<std::string>& comm) {
  MT_USER_CHECK(
      launched_ranks() == 1, ErrorClass::usage,
      cat("--nproc starts ranks, and a launcher has started ", launched_ranks(), " already"),
      "leave --nproc out");
  if (comm == "mpi") return launch_mpi_ranks(cli, nproc);
  std::vector<std::string> words = words_for_ranks(cli.words, comm ? 1 : 2);
  words.push_back(cat("dist.nproc=", nproc));
  if (!comm) words.emplace_back("dist.comm=tcp");
  return run_local_ranks(words, nproc);
}

namespace {

/// An explicit dist.nproc with another number is an error. Other errors of the recipe are left to
/// its check.
void require_same_nproc(const Recipe& recipe, int64_t nproc) {
  const Node* given =
      recipe.config.root().is_map() ? recipe.config.root().find("dist.nproc") : nullptr;
  if (!given || !given->is(NodeKind::integer) || !given->loc() ||
      given->loc().source->kind() == SourceKind::built_in)
    return;
  MT_USER_CHECK(given->as_int() == nproc, ErrorClass::usage,
                cat("--nproc is ", nproc, ", and dist.nproc is ", given->as_int(), " (",
                    given->loc().text(), ")"),
                cat("give one number of ranks: leave dist.nproc out, or set dist.nproc=", nproc,
                    ", or start --nproc ", given->as_int()));
}

}  // namespace

int launch_recipe(const Cli& cli, RecipeRequest request, int64_t nproc) {
  PluginHost plugins(plugin_folders(cli.plugin_path));  // the first rank warns of absent folders
  require_same_nproc(read_recipe(request, plugins), nproc);
  auto set = [&](const char* key, const std::string& value) {
    request.overrides.push_back({key, 0, {}, false, value});
  };
  set("dist.nproc", std::to_string(nproc));
  request.cluster.world_size = nproc;
  std::optional<std::string> comm = load_recipe(request, plugins).settings.dist.comm;
  MT_USER_CHECK(comm != "thread", ErrorClass::usage,
                "--nproc starts processes, and dist.comm=thread makes ranks threads of one process",
                cat("leave --nproc out and set dist.nproc=", nproc, ", or leave dist.comm out"));
  if (!comm) set("dist.comm", "tcp");
  if (!comm) load_recipe(request, plugins);
  return launch_ranks(cli, nproc, comm);
}

}  // namespace mtrain
