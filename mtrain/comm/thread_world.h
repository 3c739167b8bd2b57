// Ranks as threads of one process: for tests, and for trying layouts on one machine. ThreadWorld
// owns the state that the ranks share and outlives their communicators. make() may be called on any
// thread; each communicator then belongs to its rank's thread.
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
  /// The world's communicator of `rank`. Call it once per rank.
  std::unique_ptr<Communicator> make(int rank);
  /// Declares that this rank makes no further calls, so that no other rank waits for it.
  void leave(int rank);
  /// The rank that failed first; -1 if none failed or no single rank is at fault.
  int failed_rank() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

/// Runs fn on `size` threads, each with its rank's communicator of a new world, and joins them. If
/// ranks throw, the other ranks get Error(peer), and the error of the rank that failed first is
/// rethrown here.
MT_API void run_ranks(int size, const std::function<void(Communicator&)>& fn,
                      const CommContext& context = {});

}  // namespace mtrain
