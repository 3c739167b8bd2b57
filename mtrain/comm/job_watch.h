// JobWatch: detects failed ranks in a job of processes. Each process has a separate watcher thread,
// which runs independently of the rank's work. All ranks are connected to rank 0, which judges them
// (job_judge.h) and reports failures to all; the others watch rank 0. A rank that died is detected
// at once, since the system closes its connection; one that is stopped or stuck, within the time of
// WatchOptions. For the thread of its rank; RankActivity is safe from any thread.
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

  /// On rank 0: opens a port and returns the text for connect() on the others. Throws Error(io).
  std::string open_endpoint();
  /// On the others: connects to rank 0. Returns false and sets `reason` if that fails.
  bool connect(const std::string& endpoint, std::string& reason);
  /// Starts the watcher. REQUIRES: all other ranks are connected.
  void begin();

  RankActivity& activity() { return activity_; }
  /// The detected failure; only without WatchOptions::give_up, which ends the process instead.
  std::optional<CommFailure> failure() const;
  bool failed() const { return failed_.load(); }
  /// Reports that this rank has failed. Ranks are not judged any more, and ranks that do not end in
  /// time are ended.
  void report_failure(const std::string& reason, ErrorClass error_class);
  /// The job has finished: notifies the others and stops the watcher.
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
