// The state that the threads of a ThreadWorld share: the job's failure, each rank's state and, per
// group, the calls that not all members have posted yet. A group owns a reference to its world;
// communicators and started calls own one to their group. Safe from any rank's thread.
#pragma once
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "mtrain/base/doorbell.h"
#include "mtrain/comm/communicator.h"
#include "mtrain/comm/failure.h"
#include "mtrain/comm/rank_activity.h"
#include "mtrain/comm/shared_call.h"

namespace mtrain {

struct ThreadState {
  explicit ThreadState(int size, const CommContext& context);

  /// Records the job's first failure and wakes all ranks. True if it was the first.
  bool fail(CommFailure failure) noexcept;
  bool failed() const { return failed_.load(); }
  CommFailure failure() const;
  /// The rank makes no further calls.
  void leave(int rank);
  void ring(std::span<const int> world_ranks, int except);
  struct alignas(64) Rank {
    Doorbell bell;
    RankActivity activity;
    std::atomic<bool> left{false};
  };
  std::unique_ptr<Rank[]> ranks;
  const int size;
  const CommContext context;
  const int spins;  // how often a waiting thread polls before it sleeps
  std::atomic<int> num_left{0};

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> failed_{false};
  CommFailure failure_;
};

struct ThreadGroup {
  ThreadGroup(std::shared_ptr<ThreadState> state_in, std::string name_in,
              std::vector<int> world_ranks_in);

  /// Posts the next call of `member` (its rank in this group). Returns the shared call, and whether
  /// this was its last missing member. If the call does not match that of another member, fails the
  /// job and throws Error(peer).
  std::pair<std::shared_ptr<SharedCall>, bool> post(int member, const CommCall& call,
                                                    const std::string& split_name = {});
  /// The world ranks of the members that have not posted a call yet.
  std::vector<int> missing(const CommCall& call, int member, const SharedCall& shared);
  /// The place, for messages, of `call` if `member` made it now.
  std::string next_place(int member, const CommCall& call);
  std::string place(const CommCall& call, uint64_t number) const {
    return call_place(call, number, name, world_ranks);
  }

  const std::shared_ptr<ThreadState> state;
  const std::string name;
  const std::vector<int> world_ranks;

 private:
  /// Calls in order, without those that all members have posted.
  struct Channel {
    std::deque<std::shared_ptr<SharedCall>> open;
    uint64_t num_gone = 0;
    std::vector<uint64_t> posted;  // by member
  };
  Channel& channel(int member, const CommCall& call);
  void require_agreement(int member, const CommCall& call, const SharedCall& shared);
  void make_split_groups(SharedCall& shared, int poster);
  [[noreturn]] void disagree(int member, const CommCall& call, uint64_t number, int other,
                             const CommCall& other_call);

  std::mutex mutex_;
  Channel collectives_;
  std::map<std::tuple<int, int, int>, Channel> messages_;  // by sender, receiver, tag
};

}  // namespace mtrain
