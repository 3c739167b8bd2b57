// Lane: an NCCL communicator with its own stream, and the calls that were started on it. All ranks
// of a lane create it at its first call: the first rank sends NCCL's id to the others through the
// host communicator, then NCCL connects in the background. Neither step blocks: calls are queued
// until the lane is ready, and are issued whenever their rank is inside a call. The ranks of a
// group have one lane for collectives; a sender and a receiver have one lane per tag, because
// NCCL's messages have no tags and one message would block the next on a common stream. For the
// rank's own thread; NCCL is called with the job's lock.
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
  Event ready, finished;  // its inputs are available; its results are available
  bool issued = false;
};

class Lane;

/// Memory that a lane's calls use repeatedly. Its fields are guarded by the job's lock.
struct Kept {
  void* data;
  size_t bytes;
  Lane* lane = nullptr;  // if it has been created
  bool registered = false, gone = false;
  void* handle = nullptr;  // NCCL's handle; may be null
};

class Lane {
 public:
  /// What the ranks of a lane exchange.
  struct Record {
    ncclUniqueId id;
    char host[64];
    char gpu[64];
    int32_t world_rank;
  };
  /// `exchange` starts the exchange of the ranks' records through the host communicator; this
  /// rank's record is all[rank].
  Lane(Job& job, int rank, int size, std::string name, int device,
       const std::function<Pending(const Record& mine, std::span<Record> all)>& exchange);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void add(std::shared_ptr<Op> op) { queue_.push_back(std::move(op)); }
  /// Advances as far as possible without waiting. Throws Error(config) for ranks that share a GPU,
  /// Error(peer) for NCCL's errors.
  void advance();
  /// With the job's lock held. The memory is registered before the next issued call; let_go()
  /// deregisters it, unless NCCL has been ended before.
  void keep(std::shared_ptr<Kept> memory);
  void let_go(Kept& memory) noexcept;
  bool idle() const { return queue_.empty(); }
  int device() const { return device_; }

  /// With the job's lock held. For a communicator that is connecting, connected or aborted.
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
