#include "mtrain/train/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <ctime>
#include <utility>

#include "mtrain/base/log.h"
#include "mtrain/cpu/threads.h"

namespace mtrain {
namespace {
sigset_t watched() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  return set;
}

// A launcher also signals the ranks of a job that has failed, which is then told instead (and warnings are off).
constexpr int kTicksBeforeTelling = 6;
}  // namespace

SignalWatch::SignalWatch() {
  sigset_t set = watched();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

SignalWatch::~SignalWatch() {
  watcher_.request_stop();
  watcher_.join();
  sigset_t set = watched();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void SignalWatch::watch(const std::stop_token& stop) {
  sigset_t set = watched();
  const timespec tick{0, 100'000'000};
  int ticks = 0, untold = 0;
  while (!stop.stop_requested()) {
    int signal = sigtimedwait(&set, nullptr, &tick);
    if (signal <= 0) {
      if (untold != 0 && --ticks <= 0) tell(std::exchange(untold, 0));
      continue;
    }
    if (received() != 0) _exit(128 + signal);
    received_.store(signal, std::memory_order_relaxed);
    untold = signal;
    ticks = cpu::launched_here() > 1 ? kTicksBeforeTelling : 0;
    if (ticks == 0) tell(std::exchange(untold, 0));
  }
}

void SignalWatch::tell(int signal) {
  log_warn(strsignal(signal), ": stopping after this step with a checkpoint; once more ends at once");
}

}  // namespace mtrain
