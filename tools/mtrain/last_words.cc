#include "last_words.h"

#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "mtrain/base/error.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/base/text_stream.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define MT_SANITIZED 1
#endif
#endif

namespace mtrain {
namespace {

constexpr const char* kMemory =
    "  help: raise the limits of memory (ulimit -v, or the container's), use a smaller model or "
    "micro-batch, or a larger machine\n";
constexpr const char* kDefect =
    "  help: this is a defect of mtrain or of a plugin: please report it with this line\n";

void say(const char* text) {
  pollfd wait{.fd = 2, .events = POLLOUT, .revents = 0};
  if (::poll(&wait, 1, 0) > 0 && ::write(2, text, std::strlen(text)) < 0) return;
}

/// Whether the system refuses even one megabyte. Only a system call, so it is safe in a signal
/// handler.
bool no_memory() {
  constexpr size_t kBytes = 1 << 20;
  void* got = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) return true;
  ::munmap(got, kBytes);
  return false;
}

[[noreturn]] void on_terminate() {
  try {
    if (std::exception_ptr failure = std::current_exception()) std::rethrow_exception(failure);
    say("mtrain: error[internal]: the program was ended without an exception\n");
  } catch (const std::bad_alloc&) {
    say("mtrain: error[config]: out of memory: the system has no more memory for this process\n");
    say(kMemory);
    _exit(static_cast<int>(ErrorClass::config));
  } catch (const std::exception& error) {
    say("mtrain: error[internal]: an exception was thrown where none is allowed: ");
    say(error.what());
    say("\n");
  } catch (...) {
    say("mtrain: error[internal]: something was thrown that is not a std::exception\n");
  }
  const PluginCall* call = PluginCall::current();
  if (!call || !call->plugin()) say(kDefect);  // else the handler of SIGABRT names the plugin
  flush_standard_error();  // what a slow reader has not taken yet: after the message, as this takes
                           // a lock
  std::abort();            // with a core file if the system keeps one
}

const char* signal_name(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV";
    case SIGBUS:
      return "SIGBUS";
    case SIGFPE:
      return "SIGFPE";
    case SIGILL:
      return "SIGILL";
    default:
      return "SIGABRT";
  }
}

/// If core files are enabled, leaves one of this thread: a forked copy of the process ends by the
/// signal.
void leave_core_file(int signal) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_CORE, &limit) != 0 || limit.rlim_cur == 0) return;
  const pid_t copy = ::_Fork();  // fork() takes locks that the crashed thread may hold
  if (copy == 0) {
    ::signal(signal, SIG_DFL);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
    ::raise(signal);
    _exit(static_cast<int>(ErrorClass::plugin));
  }
  if (copy > 0) ::waitpid(copy, nullptr, 0);
}

/// Ends the process if this thread is in a plugin's call. `what`: how it ended, "crashed".
void end_in_plugin(const char* what, int signal) {
  const PluginCall* call = PluginCall::current();
  const PluginCode* plugin = call ? call->plugin() : nullptr;
  if (!plugin) return;
  for (const char* part : {"mtrain: error[plugin]: ", plugin->title.c_str(), what, call->call(),
                           " (", signal_name(signal),
                           ")\n  help: this is a fault of the plugin, or of what it was given: "
                           "show this line to the author of ",
                           plugin->path.c_str(), "\n"})
    say(part);
  leave_core_file(signal);
  _exit(static_cast<int>(ErrorClass::plugin));
}

std::atomic<pid_t> crashed{0};  // the thread that crashed first

extern "C" void on_crash(int signal) {
  const auto self = static_cast<pid_t>(::syscall(SYS_gettid));
  pid_t first = 0;
  // Ranks that are threads may crash together: one of them reports and ends the process.
  while (!crashed.compare_exchange_strong(first, self) && first != self) ::pause(), first = 0;
  if (signal == SIGSEGV && no_memory()) {  // a library used the result of a failed allocation
    say("mtrain: error[config]: out of memory: the system has no more memory for this process, and "
        "a library crashed (SIGSEGV)\n");
    say(kMemory);
    leave_core_file(signal);
    _exit(static_cast<int>(ErrorClass::config));
  }
  end_in_plugin(" crashed in ", signal);
  if (signal == SIGSEGV) {
    say("mtrain: error[internal]: memory fault (SIGSEGV)\n");
    say(kDefect);
  } else if (signal != SIGABRT) {  // the code that called abort() has printed the reason
    for (const char* part :
         {"mtrain: error[internal]: the program crashed (", signal_name(signal), ")\n", kDefect})
      say(part);
  }
  ::signal(signal, SIG_DFL);  // not earlier: other threads that crash now wait above
  ::raise(signal);  // ends the process on return, with a core file if the system keeps one
}

}  // namespace

void prepare_last_words() {
  std::set_terminate(on_terminate);
#if !defined(MT_SANITIZED)                  // sanitizers report it better
  static std::array<char, 64 << 10> stack;  // because the thread's own stack may be exhausted
  const stack_t alternative{.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
  struct sigaction action {};
  action.sa_handler = on_crash;
  action.sa_flags = SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  if (::sigaltstack(&alternative, nullptr) != 0) return;
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    ::sigaction(signal, &action, nullptr);
#endif
}

}  // namespace mtrain
