// JobWatch: how ranks that are processes look after each other, on a thread of its own in each, so
// that it goes on whatever the rank itself is doing. All are connected to the first rank, which
// judges (job_judge.h) and tells all; they in turn look after the first rank. Who has died is known
// at once, since the system closes its connection; who is stopped or stuck, in the time of
// WatchOptions. For the thread of its rank; RankActivity is safe from any.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/comm/failure.h"

namespace mtrain {

class MT_API JobWatch {
 public:
  /// `hosts`: the name of each rank's machine.
  JobWatch(int rank, std::vector<std::string> hosts, const CommContext& context);
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  /// On the first rank: a text for connect() of the others. Throws Error(io).
  std::string open_door();
  /// On the others: false, and `reason` says why, when the first rank cannot be reached.
  bool connect(const std::string& door, std::string& reason);
  /// Begins to watch. REQUIRES: all others are connected.
  void begin();

  RankActivity& activity() { return activity_; }
  /// What was found; only without WatchOptions::give_up, which ends the process instead.
  std::optional<CommFailure> failure() const;
  bool failed() const { return failed_.load(); }
  /// This rank has failed and says so itself: nobody is to be judged any more, and who does not end
  /// in time is ended.
  void report_failure(const std::string& reason, ErrorClass error_class);
  /// The job is at its end: says farewell and stops.
  void end();

 private:
  class Watcher;
  friend class Watcher;
  int rank_;
  std::vector<std::string> hosts_;
  CommContext context_;
  RankActivity activity_;
  std::unique_ptr<Watcher> watcher_;
  std::thread thread_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::optional<CommFailure> failure_;      // guarded by mutex_
  std::optional<CommFailure> own_failure_;  // guarded by mutex_
  std::atomic<bool> ending_{false};
};

}  // namespace mtrain
