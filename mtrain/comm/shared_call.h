// SharedCall: one collective of threads, or one message between two. Every member posts its
// buffers; from then on the work lies ready in pieces, and whoever waits takes pieces until none is
// left, working on all members' buffers at once. So no member depends on another one's progress,
// only on its arrival. Shared by its members; posting is guarded by the group's mutex, the rest is
// safe from any member's thread.
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
    std::shared_ptr<ThreadGroup> split_group;  // what split() made for this member
    int split_rank = 0;
  };
  enum class State : int { gathering, ready, complete };

  SharedCall(int members, uint64_t number)
      : number_(number), members_(static_cast<size_t>(members)) {}

  /// REQUIRES the group's mutex.
  void post(int member, const CommCall& call);
  bool all_posted() const { return num_posted_ == members_.size(); }
  std::vector<Member>& members() { return members_; }
  /// A member that has posted, null when none has.
  const Member* any_posted() const;
  /// Cuts the work into pieces once all have posted.
  void open();

  State state() const { return state_.load(); }
  bool complete() const { return state() == State::complete; }
  int64_t num_pieces() const { return pieces_; }
  uint64_t number() const { return number_; }

  /// Carries out pieces of a ready call until none is left to take. True when it finished the last
  /// one.
  bool help();
  /// No piece is begun any more, and none is under way on return: the members' memory may go.
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
          pieces_ = 0;  // elements of a rank's part; of them in a piece; pieces
  std::atomic<State> state_{State::gathering};
  std::atomic<int64_t> next_{0}, finished_{0};
  std::atomic<int> active_{0};
};

}  // namespace mtrain
