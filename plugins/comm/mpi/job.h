// Job: what one process of an MPI job keeps for all its groups: the MPI session, the started calls,
// which all make progress whenever the rank waits for one, the job's failure, and how it is told.
// For one thread at a time.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/comm/failure.h"
#include "mtrain/comm/job_watch.h"
#include "transport.h"

namespace mtrain::mpi {

class Work;

class Job {
 public:
  explicit Job(const CommContext& context);
  /// Ends MPI once every rank has come to its end; after a failure, here or there, ends every
  /// process of the job, once they had a moment to report.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int rank() const { return control_.rank(); }
  int size() const { return control_.size(); }
  const CommContext& context() const { return context_; }
  Channel world() const { return process_.world(); }
  /// What this rank tells of itself; null where nobody watches.
  RankActivity* activity() const { return watch_ ? &watch_->activity() : nullptr; }

  /// Calls that have been started, oldest first.
  void add(Work& work) { active_.push_back(&work); }
  void remove(Work& work);
  /// Lets every started call make what progress it can.
  void progress();

  /// Takes this as the job's failure unless it has one, and tells the other processes.
  void fail(CommFailure failure, ErrorClass error_class) noexcept;
  /// Looks for news of a failure elsewhere.
  bool failed();
  const CommFailure& failure() const { return *failure_; }

  /// Remembers that `rank` came to a call: "barrier #3 of group 'tp'".
  void saw(int world_rank, CommKind kind, uint64_t number, const std::string& group);
  std::string last_seen(int world_rank) const;

  /// Memory that MPI may still read or write in a failed job.
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
  Process process_;
  Channel control_;
  std::unique_ptr<Notice> incoming_;
  Batch listening_;
  std::vector<Work*> active_;
  std::unique_ptr<JobWatch> watch_;  // null: nobody watches
  std::optional<CommFailure> failure_;
  ErrorClass failure_class_ = ErrorClass::peer;
  std::vector<Sighting> seen_;
  std::vector<std::pair<Batch, std::unique_ptr<std::byte[]>>> kept_;
};

}  // namespace mtrain::mpi
