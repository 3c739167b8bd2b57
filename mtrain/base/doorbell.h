// Doorbell: where one thread sleeps until another has news for it. The sleeper announces itself,
// looks once more, and only then sleeps; whoever has news makes them visible first and rings
// afterwards, which costs one load while nobody sleeps. Both sides need sequential consistency: of
// the announcement and the news, one is seen. One sleeper, any number of ringers.
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

/// Lets the core's other hardware thread go first, between two looks of one that spins.
inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Doorbell {
 public:
  void ring() {
    if (asleep_.load() == 0 || asleep_.exchange(0) == 0) return;
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&asleep_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
            nullptr, 0);
  }

  /// Sleeps until rung, for `limit` at most and possibly shorter; not at all when `news()` is true.
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
