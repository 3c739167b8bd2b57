// The handler of SIGILL, and libc's functions that the library stands in front of so that the
// handler stays in place.
#include <asm/prctl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "arithmetic.h"
#include "execute.h"
#include "raw_syscall.h"

#define MT_EXPORT __attribute__((visibility("default")))

namespace mtrain::emulation {
namespace {

using Sigaction = int (*)(int, const struct sigaction*, struct sigaction*);
using Signal = void (*(*)(int, void (*)(int)))(int);
using Sigmask = int (*)(int, const sigset_t*, sigset_t*);

template <class Function>
Function libc_function(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

XsaveLayout layout;

// What the program itself wants on SIGILL: it gets what is not ours.
struct sigaction programs_action {};
std::atomic_flag programs_action_busy = ATOMIC_FLAG_INIT;

struct sigaction exchange_action(const struct sigaction* next) {
  while (programs_action_busy.test_and_set(std::memory_order_acquire)) {
  }
  struct sigaction before = programs_action;
  if (next != nullptr) programs_action = *next;
  programs_action_busy.clear(std::memory_order_release);
  return before;
}

void say(const char* text, int bytes) {
  while (bytes > 0) {
    ssize_t written = write(STDERR_FILENO, text, static_cast<size_t>(bytes));
    if (written <= 0) return;
    text += written;
    bytes -= static_cast<int>(written);
  }
}

/// Names the bytes up to the page's end: the next page need not be mapped.
void report(const uint8_t* rip, const char* what, const char* reason) {
  constexpr int kLongest = 15, kPage = 4096;
  char text[320];
  int size = snprintf(text, sizeof(text), "emulated x86: %s at %p, bytes", what,
                      static_cast<const void*>(rip));
  auto in_page = kPage - static_cast<int>(reinterpret_cast<uintptr_t>(rip) % kPage);
  for (int i = 0; i < kLongest && i < in_page; ++i)
    size += snprintf(text + size, sizeof(text) - size, " %02x", rip[i]);
  size += snprintf(text + size, sizeof(text) - size, ": %s\n", reason);
  say(text, size);
}

/// The program's own handler, or the default action, which ends the program at the instruction that
/// the signal is about.
void pass_on(int signal, siginfo_t* info, void* context) {
  struct sigaction action = exchange_action(nullptr);
  bool plain = (action.sa_flags & SA_SIGINFO) == 0;
  if (plain && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) {
    if (action.sa_handler == SIG_IGN && info->si_code <= 0) return;
    struct sigaction end {};
    end.sa_handler = SIG_DFL;
    libc_function<Sigaction>("sigaction")(SIGILL, &end, nullptr);
    if (info->si_code <= 0) raise(SIGILL);  // from kill(): there is no instruction to run again
    return;
  }
  if (action.sa_flags & static_cast<int>(SA_RESETHAND)) {
    struct sigaction reset {};
    exchange_action(&reset);
  }
  if (plain)
    action.sa_handler(signal);
  else
    action.sa_sigaction(signal, info, context);
}

// How many instructions of each kind ran: a test that never trapped has tested nothing.
std::atomic<uint64_t> counts[kOps];

/// At the program's end, if MTRAIN_EMULATED_COUNTS is set.
__attribute__((destructor)) void print_counts() {
  if (getenv("MTRAIN_EMULATED_COUNTS") == nullptr) return;
  for (int op = 0; op < kOps; ++op) {
    char text[80];
    uint64_t count = counts[op].load();
    if (count != 0)
      say(text,
          snprintf(text, sizeof(text), "emulated x86: %" PRIu64 " x %s\n", count, kOpNames[op]));
  }
}

enum class Step { kDone, kNotOurs };

/// Runs the instruction at RIP. `first`: it is what the signal is about.
Step step(Registers& registers, bool first) {
  Instruction in;
  const char* reason = nullptr;
  const uint8_t* rip = registers.rip();
  Decoded decoded = decode(rip, in, reason);
  if (decoded == Decoded::kYes && is_neighbour(in.op)) {
    if (!first) {
      execute_neighbour(in, registers);
      registers.advance(in.length);
      return Step::kDone;
    }
    decoded = Decoded::kUnknown;
  }
  if (decoded == Decoded::kUnknown) reason = "not an instruction that is emulated";
  if (decoded == Decoded::kYes && is_tile_op(in.op)) {
    Outcome outcome = execute_tile(in, registers);
    if (outcome.general_protection != nullptr) {
      report(rip, "general protection", outcome.general_protection);
      abort();
    }
    reason = outcome.invalid_opcode;
  } else if (decoded == Decoded::kYes) {
    execute_vector(in, registers);
  }
  if (reason == nullptr) {
    counts[static_cast<int>(in.op)].fetch_add(1, std::memory_order_relaxed);
    registers.advance(in.length);
    return Step::kDone;
  }
  if (first) report(rip, "illegal instruction", reason);
  return Step::kNotOurs;
}

void on_illegal_instruction(int signal, siginfo_t* info, void* context) {
  if (info->si_code > 0) {
    Registers registers(static_cast<ucontext_t*>(context), layout);
    if (registers.valid()) {
      prepare_arithmetic();
      bool any = false;
      // Such instructions come in loops; each one that is run here saves a signal.
      while (step(registers, !any) == Step::kDone) any = true;
      if (any) return;
    } else {
      report(reinterpret_cast<const uint8_t*>(info->si_addr), "illegal instruction",
             "the CPU has no AVX-512, nothing is emulated");
    }
  }
  pass_on(signal, info, context);
}

__attribute__((constructor)) void install() {
  layout = xsave_layout();
  struct sigaction ours {};
  ours.sa_sigaction = on_illegal_instruction;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  struct sigaction before {};
  libc_function<Sigaction>("sigaction")(SIGILL, &ours, &before);
  // Constructors of other libraries may have run before: what they asked for stays.
  if (before.sa_handler != SIG_DFL) exchange_action(&before);
  sigset_t illegal;
  sigemptyset(&illegal);
  sigaddset(&illegal, SIGILL);
  libc_function<Sigmask>("pthread_sigmask")(SIG_UNBLOCK, &illegal, nullptr);
}

/// A blocked SIGILL would end the program instead of reaching the handler.
int set_mask(const char* function, int how, const sigset_t* set, sigset_t* before) {
  auto libc = libc_function<Sigmask>(function);
  if (set == nullptr || how == SIG_UNBLOCK) return libc(how, set, before);
  sigset_t without = *set;
  sigdelset(&without, SIGILL);
  return libc(how, &without, before);
}

constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr long kTileData = 18;               // XFEATURE_XTILEDATA

}  // namespace
}  // namespace mtrain::emulation

namespace emulation = mtrain::emulation;

extern "C" {

MT_EXPORT int sigaction(int signal, const struct sigaction* next, struct sigaction* before) {
  if (signal == SIGILL) {
    struct sigaction old = emulation::exchange_action(next);
    if (before != nullptr) *before = old;
    return 0;
  }
  auto libc = emulation::libc_function<emulation::Sigaction>("sigaction");
  if (next == nullptr) return libc(signal, next, before);
  struct sigaction open = *next;
  sigdelset(&open.sa_mask, SIGILL);
  return libc(signal, &open, before);
}

MT_EXPORT void (*signal(int number, void (*handler)(int)))(int) {
  if (number != SIGILL)
    return emulation::libc_function<emulation::Signal>("signal")(number, handler);
  struct sigaction next {};
  next.sa_handler = handler;
  next.sa_flags = SA_RESTART;
  return emulation::exchange_action(&next).sa_handler;
}

MT_EXPORT int sigprocmask(int how, const sigset_t* set, sigset_t* before) {
  return emulation::set_mask("sigprocmask", how, set, before);
}

MT_EXPORT int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) {
  return emulation::set_mask("pthread_sigmask", how, set, before);
}

/// Answers the request for tile data as a kernel on a CPU with AMX does; every other call goes to
/// the kernel.
MT_EXPORT long syscall(long number, ...) {
  va_list more;
  va_start(more, number);
  long given[6];
  for (long& one : given) one = va_arg(more, long);
  va_end(more);
  long answer =
      emulation::raw_syscall(number, given[0], given[1], given[2], given[3], given[4], given[5]);
  if (number == SYS_arch_prctl && given[0] == emulation::kRequestPermission &&
      given[1] == emulation::kTileData) {
    emulation::permit_tiles();
    return 0;
  }
  if (answer >= 0 || answer < -4095) return answer;
  errno = static_cast<int>(-answer);
  return -1;
}

}  // extern "C"
