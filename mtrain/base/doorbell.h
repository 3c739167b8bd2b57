// Doorbell: one thread sleeps until another thread signals an event. The sleeper sets a flag,
// checks for the event once more, and only then sleeps. The other thread first publishes the event
// and then calls ring(), which costs one load while nobody sleeps. Both sides use sequentially
// consistent operations, so at least one of them sees what the other wrote and no wake-up is lost.
// One sleeper; any number of threads may ring.
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace mtrain {

/// CPU hint inside a spin loop: the other hardware thread of the core gets priority.
inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Doorbell {
 public:
  /// Wakes the sleeper, or keeps it from falling asleep. Call it after the event is published.
  void ring() {
    if (asleep_.load() == 0 || asleep_.exchange(0) == 0) return;
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&asleep_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
            nullptr, 0);
  }

  /// Sleeps until ring(), for at most `limit`; may return earlier. Does not sleep when `news()` is
  /// true.
  template <class News>
  void sleep(std::chrono::nanoseconds limit, News&& news) {
    asleep_.store(1);
    if (!news()) {
      auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
      timespec time{static_cast<time_t>(seconds.count()),
                    static_cast<long>((limit - seconds).count())};
      syscall(SYS_futex, reinterpret_cast<uint32_t*>(&asleep_), FUTEX_WAIT_PRIVATE, 1, &time,
              nullptr, 0);
    }
    asleep_.store(0);
  }

 private:
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) &&
                std::atomic<uint32_t>::is_always_lock_free);
  std::atomic<uint32_t> asleep_{0};
};

}  // namespace mtrain
