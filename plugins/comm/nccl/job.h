// Job: what a rank shares among all its groups: NCCL, the device, the lanes, and a thread that
// watches issued calls. That thread aborts NCCL's communicators if the device or NCCL fails, or if
// a call takes longer than the time limit: kernels that wait for failed ranks then return, and so
// does a host that waits for its stream. For the rank's own thread, unless stated otherwise.
#pragma once
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "lane.h"

namespace mtrain::nccl {

class Job {
 public:
  Job(const Library& library, std::unique_ptr<DeviceCalls> device,
      std::shared_ptr<Communicator> world, std::chrono::milliseconds timeout);
  /// Waits for calls in progress and ends NCCL; after a failure ends it at once.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const Library& library() const { return library_; }
  DeviceCalls& device() const { return *device_; }
  EventPool& events() { return events_; }
  int world_rank() const { return world_->rank(); }

  Lane& add(std::unique_ptr<Lane> lane);
  /// Advances every lane.
  void progress();
  /// Advances lanes until `op` has been issued; Error(peer) after the time limit or a failure.
  void await_issue(const Op& op, Communicator& group);

  /// The lock for calls to NCCL, which the watching thread also makes when a job fails.
  std::mutex& mutex() { return mutex_; }
  /// With the lock held: throws if NCCL has been ended.
  void require_sound() const;
  /// Throws Error(peer) unless the result is success or in progress.
  void check(ncclResult_t result, ncclComm_t comm, const std::string& what) const;
  /// From now on the call is watched.
  void watch(const Lane& lane, const std::string& place, Event finished);

  /// Throws Error(peer) if the job has failed on any rank, and reports a failure of this rank to
  /// the others. Ends NCCL.
  void require_alive(Communicator& group, const CommCall& call);
  /// Ends NCCL and reports to the other ranks.
  void fail(const std::string& reason, ErrorClass error_class) noexcept;

 private:
  struct Watched {
    const Lane* lane;
    std::string place;
    Event finished;
    std::chrono::steady_clock::time_point since;
  };
  void look_after();
  std::string look();
  void end_nccl() noexcept;

  const Library& library_;
  std::unique_ptr<DeviceCalls> device_;
  EventPool events_;
  std::shared_ptr<Communicator> world_;
  std::chrono::milliseconds timeout_;
  std::list<std::unique_ptr<Lane>> lanes_;  // changed with the lock held

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Watched> watched_;            // guarded by mutex_
  std::optional<std::string> failure_;    // guarded by mutex_: found by the watching thread
  bool ended_ = false, closing_ = false;  // guarded by mutex_
  bool reported_ = false;
  int device_index_ = -1;  // guarded by mutex_: of the lanes
  std::thread thread_;
};

}  // namespace mtrain::nccl
