// StartedCall: a started call of a Group. Calls make progress only while their rank is inside a
// call; waiting for one call advances all of them. For the rank's own thread.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/message_comm/job.h"

namespace mtrain::message_comm {

struct Group {
  std::shared_ptr<Job> job;
  std::unique_ptr<Channel> channel;
  std::string name;
  std::vector<int> world_ranks;
  uint64_t num_collectives = 0;
  std::vector<uint64_t> num_sent, num_received;  // messages to and from each rank

  Group(std::shared_ptr<Job> job_in, std::unique_ptr<Channel> channel_in, std::string name_in,
        std::vector<int> world_ranks_in);
  int rank() const { return channel->rank(); }
  int size() const { return channel->size(); }
  int world(int member) const { return world_ranks[static_cast<size_t>(member)]; }
};

/// The header before the data of a call, by which ranks check that their calls match. Small data
/// follow it in the same message.
struct Header {
  static constexpr size_t kMostInline = 2048;
  uint64_t number = 0;
  int64_t count = 0;     // elements that are sent to the receiver
  int64_t expected = 0;  // all_to_all_v: elements that the sender expects from the receiver
  int32_t peer = 0, tag = 0;
  CommKind kind = CommKind::barrier;
  ReduceOp reduce = ReduceOp::sum;
  DType dtype = DType::u8;
  uint8_t uneven = 0;

  CommCall call() const;
};
inline constexpr size_t kMostHeaderBytes = sizeof(Header) + Header::kMostInline;

class StartedCall : public Pending::Work {
 public:
  StartedCall(std::shared_ptr<Group> group, const CommCall& call, uint64_t number);
  ~StartedCall() override;
  StartedCall(const StartedCall&) = delete;
  StartedCall& operator=(const StartedCall&) = delete;

  bool done() override;
  void wait() override;
  void drop() noexcept override;

  /// Makes progress without blocking; true if the call is finished. A mismatch fails the job.
  bool advance();

 protected:
  virtual bool step() = 0;
  /// The ranks of the group for which the call still waits.
  virtual std::vector<int> missing() = 0;
  /// After a failure: passes memory that the transport may still access to the job.
  virtual void release() noexcept = 0;
  /// Checks the header of `from` against `mine`, whose count is the number of elements that `from`
  /// must send. Fails the job and returns false on a mismatch. `sent`: for all_to_all_v, the
  /// elements that this rank sends to `from`.
  bool fits(int from, const Header& theirs, const CommCall& mine, int64_t sent = 0);
  std::string place() const;
  /// Part of the call's data has arrived: the call is slow, but not stuck.
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

}  // namespace mtrain::message_comm
