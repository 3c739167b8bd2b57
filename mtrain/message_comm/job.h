// Job: the state of one rank's process for all its groups: the transport; the started calls, which
// all make progress while the rank waits for one of them; and the failure of the job and its report
// to the other ranks. For one thread at a time.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/comm/failure.h"
#include "mtrain/comm/job_watch.h"
#include "mtrain/message_comm/batch.h"
#include "mtrain/message_comm/transport.h"

namespace mtrain::message_comm {

class StartedCall;

class Job {
 public:
  /// Collective over the ranks of the transport.
  Job(std::unique_ptr<Transport> transport, const CommContext& context);
  /// Waits until every rank has finished. After a failure of any rank, it ends all processes of the
  /// job instead, after a short time for their reports.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int rank() const { return control_->rank(); }
  int size() const { return control_->size(); }
  const CommContext& context() const { return context_; }
  std::string_view kind() const { return transport_->kind(); }
  /// A new channel of all ranks.
  std::unique_ptr<Channel> world() const { return transport_->world(); }
  /// This rank's activity; null if the job is not watched.
  RankActivity* activity() const { return watch_ ? &watch_->activity() : nullptr; }

  /// Adds a started call; they are kept oldest first.
  void add(StartedCall& call) { active_.push_back(&call); }
  void remove(StartedCall& call);
  /// Makes progress in all started calls.
  void progress();

  /// Records the job's first failure and reports it to the other processes.
  void fail(CommFailure failure, ErrorClass error_class) noexcept;
  /// Whether the job has failed, here or on another rank.
  bool failed();
  const CommFailure& failure() const { return *failure_; }

  /// Records the last call that a rank is known to have reached: "barrier #3 of group 'tp'".
  void saw(int world_rank, CommKind kind, uint64_t number, const std::string& group);
  std::string last_seen(int world_rank) const;

  /// Keeps memory alive that the transport may still access in a failed job.
  void keep(Batch batch, std::unique_ptr<std::byte[]> memory);

 private:
  struct Notice;
  struct Sighting {
    bool any = false;
    CommKind kind = CommKind::barrier;
    uint64_t number = 0;
    std::string group;
  };
  void listen();
  void start_watch();
  void finish(Batch& batch, const char* what);
  std::vector<std::string> gather_hosts();
  bool close() noexcept;
  void part() noexcept;

  CommContext context_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Channel> control_;  // for the job's own messages
  std::unique_ptr<Notice> incoming_;
  Batch listening_;
  std::vector<StartedCall*> active_;
  std::unique_ptr<JobWatch> watch_;  // null: the job is not watched
  std::optional<CommFailure> failure_;
  ErrorClass failure_class_ = ErrorClass::peer;
  std::vector<Sighting> seen_;
  std::vector<std::pair<std::unique_ptr<std::byte[]>, Batch>> kept_;
};

}  // namespace mtrain::message_comm
