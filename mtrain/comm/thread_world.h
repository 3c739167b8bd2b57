// Ranks as threads of one process: for tests, and for trying layouts on one machine. ThreadWorld
// owns what the ranks share and outlives their communicators. make() is for any thread; each
// communicator then belongs to its rank's thread.
#pragma once
#include <functional>
#include <memory>

#include "mtrain/comm/communicator.h"

namespace mtrain {

class MT_API ThreadWorld {
 public:
  explicit ThreadWorld(int size, const CommContext& context = {});
  ~ThreadWorld();
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  int size() const;
  /// The world's communicator of `rank`. Once per rank.
  std::unique_ptr<Communicator> make(int rank);
  /// Says that this rank makes no calls any more, so that nobody waits for it.
  void leave(int rank);
  /// The rank that failed first, -1 when none did or the failure is nobody's alone.
  int failed_rank() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

/// Runs fn on `size` threads, each with its rank's communicator of a new world, and joins them all.
/// When ranks throw, the others are told; the error of the rank that failed first is thrown here.
MT_API void run_ranks(int size, const std::function<void(Communicator&)>& fn,
                      const CommContext& context = {});

}  // namespace mtrain
