// Lane: an NCCL communicator with a stream of its own, and the calls that were started on it. A
// lane is made by its first call, by all ranks of it: the first tells the others NCCL's id through
// the host communicator, then NCCL connects in the background. Neither blocks: calls queue up until
// the lane is ready, and are issued whenever their rank is inside a call. The ranks of a group have
// one for collectives; a sender and a receiver have one for each tag, since NCCL's messages have
// none and a stream would make one wait for another. For the rank's own thread; NCCL is called with
// the job's lock.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "events.h"
#include "library.h"
#include "mtrain/comm/communicator.h"

namespace mtrain::nccl {

class Job;

/// A started call.
struct Op {
  CommCall call;
  std::vector<int64_t> send_counts, recv_counts;
  std::string place;      // in messages
  Event ready, finished;  // its inputs are there; its results are
  bool issued = false;
};

class Lane;

/// Memory that a lane's calls use again and again. Its fields are guarded by the job's lock.
struct Kept {
  void* data;
  size_t bytes;
  Lane* lane = nullptr;  // where one has been made
  bool registered = false, gone = false;
  void* handle = nullptr;  // NCCL's, which may be null
};

class Lane {
 public:
  /// What the ranks of a lane tell each other.
  struct Record {
    ncclUniqueId id;
    char host[64];
    char gpu[64];
    int32_t world_rank;
  };
  /// `exchange` begins to fill records from this rank's, which is all[rank], through the host
  /// communicator.
  Lane(Job& job, int rank, int size, std::string name, int device,
       const std::function<Pending(const Record& mine, std::span<Record> all)>& exchange);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void add(std::shared_ptr<Op> op) { queue_.push_back(std::move(op)); }
  /// Goes on as far as it can without waiting. Throws Error(config) for ranks that share a GPU,
  /// Error(peer) for NCCL's.
  void advance();
  /// With the job's lock held. The memory is registered before the next call that is issued;
  /// let_go() ends that, where NCCL has not been ended before.
  void keep(std::shared_ptr<Kept> memory);
  void let_go(Kept& memory) noexcept;
  bool idle() const { return queue_.empty(); }
  int device() const { return device_; }

  /// With the job's lock held. Of a communicator that is connecting, connected, or was aborted.
  ncclComm_t comm() const { return comm_; }
  void abort() noexcept;
  void begin_end() noexcept;
  bool ended() noexcept;

 private:
  enum class State { exchanging, connecting, ready, issuing };
  void connect();
  bool settled();
  void issue();
  ncclResult_t call(const Op& op);
  ncclResult_t exchange_blocks(const Op& op, ncclDataType_t type, size_t per_element);
  void require_own_gpus() const;
  void finish_issue();
  void register_kept();

  Job& job_;
  int rank_, size_;
  std::string name_;
  int device_;
  std::vector<Record> records_;
  Pending exchange_;
  State state_ = State::exchanging;
  ncclComm_t comm_ = nullptr;
  StreamHandle stream_ = nullptr;
  std::deque<std::shared_ptr<Op>> queue_;
  std::vector<std::shared_ptr<Kept>> kept_;  // guarded by the job's lock
};

}  // namespace mtrain::nccl
