// SharedCall: one collective of threads, or one message between two. Every member posts its
// buffers. When all have posted, the work is split into pieces, and each waiting member executes
// pieces, on all members' buffers, until none is left. So a member depends only on the arrival of
// the others, not on their progress. Shared by its members; the group's mutex guards posting, the
// rest is safe from any member's thread.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/comm/call.h"

namespace mtrain {

struct ThreadGroup;

class SharedCall {
 public:
  struct Member {
    CommCall call;
    std::vector<int64_t> send_counts, recv_counts;  // of the uneven form; `call` points at them
    bool posted = false;
    std::string split_name;
    std::shared_ptr<ThreadGroup> split_group;  // the group that split() created for this member
    int split_rank = 0;
  };
  enum class State : int { gathering, ready, complete };

  SharedCall(int members, uint64_t number)
      : number_(number), members_(static_cast<size_t>(members)) {}

  /// REQUIRES the group's mutex.
  void post(int member, const CommCall& call);
  bool all_posted() const { return num_posted_ == members_.size(); }
  std::vector<Member>& members() { return members_; }
  /// A member that has posted; null if none has.
  const Member* any_posted() const;
  /// Splits the work into pieces. REQUIRES: all have posted.
  void open();

  State state() const { return state_.load(); }
  bool complete() const { return state() == State::complete; }
  int64_t num_pieces() const { return pieces_; }
  uint64_t number() const { return number_; }

  /// Executes pieces of a ready call until none is left. True if it finished the last one.
  bool help();
  /// Prevents new pieces and waits for running ones: after it returns, the members' memory may be
  /// freed.
  void seal() noexcept;

 private:
  void carry_out(int64_t piece);
  void reduce_all(int64_t begin, int64_t count);
  void reduce_parts(int64_t begin, int64_t count);
  void gather(int64_t begin, int64_t count);
  void exchange(int64_t begin, int64_t count);
  void exchange_uneven(int64_t begin, int64_t count);

  uint64_t number_;
  std::vector<Member> members_;
  size_t num_posted_ = 0;
  int64_t extent_ = 0, step_ = 1,
          pieces_ = 0;  // elements per rank; elements per piece; number of pieces
  std::atomic<State> state_{State::gathering};
  std::atomic<int64_t> next_{0}, finished_{0};
  std::atomic<int> active_{0};
};

}  // namespace mtrain
