// ThreadWatch: watches ranks that are threads of this process, on a separate thread, during its
// lifetime. It fails the job if a rank is stuck while others wait for it, and ends the process
// (WatchOptions::give_up) if ranks do not return after a failure.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "mtrain/comm/thread_group.h"

namespace mtrain {

class ThreadWatch {
 public:
  explicit ThreadWatch(std::shared_ptr<ThreadState> state);
  ~ThreadWatch();
  ThreadWatch(const ThreadWatch&) = delete;
  ThreadWatch& operator=(const ThreadWatch&) = delete;

 private:
  void watch();
  void after_failure();
  /// False when it is time to end.
  bool sleep(std::chrono::milliseconds time);

  std::shared_ptr<ThreadState> state_;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace mtrain
