// CollectiveCall: a collective as messages. First, every rank sends every other rank a header,
// which contains small data, so that all know which ranks have started the call and whether their
// calls match. Larger data follow in rounds of a few MiB (whole buffers exceed the caches, which
// halves the speed of MPI). A round of all_reduce has one slice per rank: each rank receives its
// slice from all, combines them in the order of ranks, and sends the result to all. For the rank's
// own thread.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "mtrain/message_comm/started_call.h"

namespace mtrain::message_comm {

class CollectiveCall : public StartedCall {
 public:
  CollectiveCall(std::shared_ptr<Group> group, const CommCall& call,
                 std::string_view attached = {});

  /// The data that each rank attached to its header. REQUIRES: the call is finished.
  std::string_view attached(int member) const;
  const CommCall& call_of(int member) const { return calls_[static_cast<size_t>(member)]; }

 protected:
  bool step() override;
  std::vector<int> missing() override;
  void release() noexcept override;

 private:
  struct Block {  // elements that go from one rank to another
    int64_t begin = 0, count = 0;
  };
  struct Round {
    int64_t begin = 0, count = 0;
    int phase = 0;
    Batch batch;
    std::unique_ptr<std::byte[]> memory;  // received data to combine
  };

  Block to(int member) const;
  Block from(int member) const;
  bool in_header(int64_t count) const;
  void send_headers(std::string_view attached);
  bool headers_are_in();
  void take_from_headers();
  void plan_rounds();
  bool step_rounds();
  void post(Round& round);
  void post_scatter(Round& round);
  void post_gather(Round& round);
  void post_exchange(Round& round);
  void finish_scatter(Round& round);
  Block slice(const Round& round, int member) const;
  void send(int to, const void* data, Block block, int phase, Batch& batch);
  void recv(int from, void* data, Block block, int phase, Batch& batch);
  int tag(int phase) const;
  size_t bytes(int64_t count) const { return static_cast<size_t>(count) * size_of(call_.dtype); }
  std::byte* header_from(int member) const;
  std::byte* header_to(int member) const;
  bool reduces() const {
    return call_.kind == CommKind::all_reduce || call_.kind == CommKind::reduce_scatter;
  }
  bool two_phases() const {
    return call_.kind == CommKind::all_reduce || call_.kind == CommKind::broadcast;
  }
  int n() const { return group_->size(); }
  int me() const { return group_->rank(); }

  std::vector<int64_t> send_counts_, recv_counts_;
  std::unique_ptr<std::byte[]> headers_;
  Batch headers_out_, headers_in_;
  std::vector<size_t> header_index_;  // by member, into headers_in_
  std::vector<bool> came_;
  std::vector<CommCall> calls_;  // by member
  int num_came_ = 0;
  bool in_rounds_ = false;
  int64_t next_ = 0, extent_ = 0, step_ = 1;
  std::deque<Round> rounds_;
};

}  // namespace mtrain::message_comm
