// Work: a started call of an MPI group, and Group, what it belongs to. Calls make progress only
// inside calls of this rank: whoever waits for one advances them all. For the rank's own thread.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "job.h"

namespace mtrain::mpi {

struct Group {
  std::shared_ptr<Job> job;
  Channel channel;
  std::string name;
  std::vector<int> world_ranks;
  uint64_t num_collectives = 0;
  std::vector<uint64_t> num_sent, num_received;  // messages to and from each rank

  Group(std::shared_ptr<Job> job_in, Channel channel_in, std::string name_in,
        std::vector<int> world_ranks_in);
  int rank() const { return channel.rank(); }
  int size() const { return channel.size(); }
  int world(int member) const { return world_ranks[static_cast<size_t>(member)]; }
};

/// What travels before the data of a call, so that ranks can see whether they agree. Small data
/// follow it at once.
struct Header {
  static constexpr size_t kMostInline = 2048;
  uint64_t number = 0;
  int64_t count = 0;     // of what is sent to the receiver
  int64_t expected = 0;  // of the uneven form: what the receiver is to send
  int32_t peer = 0, tag = 0;
  CommKind kind = CommKind::barrier;
  ReduceOp reduce = ReduceOp::sum;
  DType dtype = DType::u8;
  uint8_t uneven = 0;

  CommCall call() const;
};
inline constexpr size_t kMostHeaderBytes = sizeof(Header) + Header::kMostInline;

class Work : public Pending::Work {
 public:
  Work(std::shared_ptr<Group> group, const CommCall& call, uint64_t number);
  ~Work() override;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  bool done() override;
  void wait() override;
  void drop() noexcept override;

  /// Makes progress without blocking; true when all is through. A disagreement fails the job.
  bool advance();

 protected:
  virtual bool step() = 0;
  /// Ranks of the group that have not yet done their share.
  virtual std::vector<int> missing() const = 0;
  /// Hands what MPI may still touch to the job, which has failed.
  virtual void release() noexcept = 0;
  /// Looks at what `from` sent: false, and the job has failed, when it does not fit `mine`, whose
  /// count is what `from` is to send. `sent`, of the uneven form, is what this rank sends there.
  bool fits(int from, const Header& theirs, const CommCall& mine, int64_t sent = 0);
  std::string place() const;
  /// Part of the call's data has come through: it takes long, but it is not stuck.
  void data_moved() {
    if (RankActivity* activity = group_->job->activity()) activity->tick();
  }

  std::shared_ptr<Group> group_;
  CommCall call_;
  uint64_t number_;  // from 1

 private:
  [[noreturn]] void leave();
  [[noreturn]] void give_up(std::chrono::steady_clock::duration waited);
  bool complete_ = false;
};

}  // namespace mtrain::mpi
