#include "mtrain/train/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <ctime>
#include <exception>
#include <utility>

#include "mtrain/base/failpoint.h"
#include "mtrain/base/log.h"
#include "mtrain/cpu/threads.h"

namespace mtrain {
namespace {
// A launcher also signals the ranks of a job that has failed. The notice waits, because then the
// failure is reported instead (and warnings are off).
constexpr int kTicksBeforeNotice = 6;
constexpr int kFailed = -1;  // value of received_ after the job has failed
}  // namespace

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&set, signal);
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) != 0 || hangup.sa_handler != SIG_IGN)
    sigaddset(&set, SIGHUP);
  return set;
}

StopRequests::Meaning StopRequests::take(int signal) {
  if (signal == SIGINT && std::exchange(interrupted_, true) && grace_ == 0)
    return Meaning::end_at_once;
  return std::exchange(any_, true) ? Meaning::nothing_new : Meaning::stop;
}

void StopRequests::tick() {
  if (!interrupted_ || grace_ == 0) return;
  failpoint("signals.tick");
  if (--grace_ == 0) failpoint("signals.grace");
}

SignalWatch::SignalWatch(Notice notice) : notice_(notice) {
  pthread_sigmask(SIG_BLOCK, &watched_, nullptr);
  watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

SignalWatch::~SignalWatch() {
  if (std::uncaught_exceptions() > 0) received_.store(kFailed, std::memory_order_relaxed);
  watcher_.request_stop();
  watcher_.join();
  const timespec now{};
  while (sigtimedwait(&watched_, nullptr, &now) > 0) {
  }  // discards repeated signals, which would otherwise end the process after it has saved
  pthread_sigmask(SIG_UNBLOCK, &watched_, nullptr);
}

void SignalWatch::watch(const std::stop_token& stop) {
  StopRequests requests;
  int ticks = 0, unreported = 0;
  while (!stop.stop_requested()) {
    int signal = sigtimedwait(&watched_, nullptr, &StopRequests::kTick);
    if (signal <= 0) {
      requests.tick();
      if (unreported != 0 && --ticks <= 0) report(std::exchange(unreported, 0));
      continue;
    }
    StopRequests::Meaning meaning = requests.take(signal);
    if (meaning == StopRequests::Meaning::end_at_once) _exit(128 + signal);
    if (meaning == StopRequests::Meaning::nothing_new) continue;
    received_.store(signal, std::memory_order_relaxed);
    unreported = signal;
    ticks = cpu::launched_here() > 1 ? kTicksBeforeNotice : 0;
    if (ticks == 0) report(std::exchange(unreported, 0));
  }
  // The job ended before the wait for a failure report was over.
  if (unreported != 0 && received_.load(std::memory_order_relaxed) != kFailed) report(unreported);
}

void SignalWatch::report(int signal) {
  if (notice_ == Notice::nothing) return;
  const bool saves = notice_ == Notice::checkpoint;
  log_warn(
      strsignal(signal), ": stopping", saves ? " after this step, with a checkpoint" : "",
      "; a second Ctrl-C (SIGINT), at least one second after the first, ends the process at once",
      saves ? ", without a checkpoint" : "");
}

}  // namespace mtrain
