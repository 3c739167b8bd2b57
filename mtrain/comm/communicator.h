// Communicator: collectives and messages among the ranks of a group. One object per rank and group,
// used only by that rank's own thread. All ranks of a group make the same calls in the same order:
// the order in which they start them. A communicator made by split() may outlive its parent, but
// not the world's communicator (of a ThreadWorld, or the first one of a plugin).
//
// Results are bit-identical on all ranks and from run to run: sums of host memory are computed in
// the order of ranks 0..n-1, in float for bf16 and fp16 (rounded once), otherwise in the type
// itself, however the implementation splits the buffers.
//
// Device memory. A buffer of a device tensor (Buffer::ctx) is read and written in the order of its
// context's stream: a call sees the work that was queued before its start, and work that is queued
// after wait() sees its result. A communicator for host memory copies to the host and back
// (staged_call.h), and the rank waits for these copies. A communicator for device memory
// (device_memory()) makes only the stream wait, and adds in its own order, which is the same on all
// ranks and from run to run.
//
// Failures. In a watched job (CommContext::watch), ranks that die or stop responding are detected
// and named; otherwise the others run into the time limit. A rank that fails calls abort(); every
// other rank then gets Error(peer) from its current or next call, with the failed rank, its reason
// and the call. The same happens to a rank that waits longer than the time limit (its error names
// the missing ranks), and on all ranks when calls differ in kind, count, dtype, operation or root.
// After a failure, no communicator of the job works any more.
#pragma once
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/comm/call.h"
#include "mtrain/comm/pending.h"
#include "mtrain/comm/rank_activity.h"
#include "mtrain/comm/watch_options.h"

namespace mtrain {

class Communicator;

/// The inputs for creating a job's first communicator.
struct CommContext {
  /// How long a rank waits for the others in one call; zero: forever.
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};
  /// Whether and how ranks that die, stop or hang are detected.
  WatchOptions watch = {};
  /// For a communicator of device memory: one of the same ranks for host memory.
  std::shared_ptr<Communicator> host = nullptr;
};

/// The largest tag of send and recv; every MPI supports at least this one.
inline constexpr int kMaxTag = 32767;

class MT_API Communicator {
 public:
  static constexpr std::string_view kKind = "comm";
  using Context = CommContext;
  Communicator() = default;
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Its name in recipes, such as "thread", "mpi" or "nccl"; "self" for a job of one rank,
  /// "planned" in a dry run.
  virtual std::string_view kind() const = 0;
  /// The group's name in messages: "world", or the name given to split().
  virtual const std::string& name() const = 0;
  /// The world rank of each rank of this group.
  virtual std::span<const int> world_ranks() const = 0;
  /// Whether calls move device memory directly between devices. A plugin of such a communicator
  /// also declares it in bind() (Fields::device_memory).
  virtual bool device_memory() const { return false; }
  /// Device memory of this rank that the network can access directly, for tensors that are
  /// communicated in every step. It is freed with its last reference, after all work that uses it.
  /// Null if the communicator has no such memory; use ordinary memory then. Throws Error(config) if
  /// the device has too little memory.
  virtual std::shared_ptr<void> network_memory(size_t) { return nullptr; }
  /// Registers memory with the network for repeated calls of this group, until the handle is
  /// released, which must happen before the memory is freed. Null if registration has no effect.
  /// Collective: all ranks of the group register memory of their own.
  virtual std::shared_ptr<void> register_memory(void*, size_t) { return nullptr; }

  /// Combines the buffers of all ranks element by element; every rank gets the result in place.
  /// Floating types, int32, int64.
  void all_reduce(Buffer data, ReduceOp op = ReduceOp::sum) { start_all_reduce(data, op).wait(); }
  /// Copies rank r's `part` to into[r * part.count] on every rank. `part` may be this rank's own
  /// place in `into`.
  void all_gather(ConstBuffer part, Buffer into) { start_all_gather(part, into).wait(); }
  /// Combines the buffers `data` of all ranks; rank r gets the r-th of size() equal parts of the
  /// result in `part`, which may be that place in its own `data`. The rest of `data` does not
  /// change.
  void reduce_scatter(ConstBuffer data, Buffer part, ReduceOp op = ReduceOp::sum) {
    start_reduce_scatter(data, part, op).wait();
  }
  /// `data` and `into` consist of size() equal parts. Part s of rank r's `data` is copied to part r
  /// of rank s's `into`. The two must not overlap.
  void all_to_all(ConstBuffer data, Buffer into) { start_all_to_all(data, into).wait(); }
  /// all_to_all with parts of different sizes: send_counts[s] elements to rank s, recv_counts[r]
  /// elements from rank r, itself included. The parts are consecutive.
  void all_to_all_v(ConstBuffer data, std::span<const int64_t> send_counts, Buffer into,
                    std::span<const int64_t> recv_counts) {
    start_all_to_all_v(data, send_counts, into, recv_counts).wait();
  }
  /// Every rank gets the root's data.
  void broadcast(Buffer data, int root) { start_broadcast(data, root).wait(); }
  /// Sends to one rank, which calls recv with the same count and dtype. Messages of one (sender,
  /// receiver, tag) arrive in order. May wait for the receiver, so two ranks that send to each
  /// other must use start_send(). `to` is another rank. tag: 0..kMaxTag.
  void send(ConstBuffer data, int to, int tag = 0) { start_send(data, to, tag).wait(); }
  void recv(Buffer data, int from, int tag = 0) { start_recv(data, from, tag).wait(); }
  void barrier() { start_barrier().wait(); }

  /// The same calls, only started; the caller waits for them later (pending.h). Invalid arguments
  /// throw Error(bug) at once.
  Pending start_all_reduce(Buffer data, ReduceOp op = ReduceOp::sum);
  Pending start_all_gather(ConstBuffer part, Buffer into);
  Pending start_reduce_scatter(ConstBuffer data, Buffer part, ReduceOp op = ReduceOp::sum);
  Pending start_all_to_all(ConstBuffer data, Buffer into);
  Pending start_all_to_all_v(ConstBuffer data, std::span<const int64_t> send_counts, Buffer into,
                             std::span<const int64_t> recv_counts);
  Pending start_broadcast(Buffer data, int root);
  Pending start_send(ConstBuffer data, int to, int tag = 0);
  Pending start_recv(Buffer data, int from, int tag = 0);
  Pending start_barrier();

  /// Combines one value of each rank.
  template <class T>
  T all_reduce_value(T value, ReduceOp op = ReduceOp::sum) {
    all_reduce(std::span<T>(&value, 1), op);
    return value;
  }

  /// Collective: ranks with equal `color` form a group, ordered by `key` and then by their rank
  /// here; null if color is negative. All ranks of a group must pass the same name.
  std::unique_ptr<Communicator> split(int color, int key, std::string name = "group");

  /// Ends the job: reports to every rank that this one failed. Does not throw; later calls throw
  /// Error(peer) on all ranks, including this one. The first failure of a job counts. If the
  /// implementation ends processes itself, their exit status is that of `error_class`.
  virtual void abort(std::string_view reason, ErrorClass error_class) noexcept = 0;
  void abort(std::string_view reason) noexcept { abort(reason, ErrorClass::peer); }

  const CommCounters& counters() const { return counters_; }

  /// Throws the job's Error(peer), as `call` would, if the job has failed. Makes no call.
  void require_alive_for(const CommCall& call) const { require_alive(call); }
  /// The implementation in a few words for the user: "NCCL 2.28.9". Empty: nothing to show.
  virtual std::string describe() const { return {}; }

  /// The status that this rank reports to the watcher of the job; the same for all groups. Null if
  /// the job is not watched.
  virtual RankActivity* activity() const { return nullptr; }

 protected:
  /// Throws the job's Error(peer) if the job has already failed.
  virtual void require_alive(const CommCall& call) const = 0;
  /// Starts a checked call. REQUIRES: the group has several ranks; the call is on host memory
  /// unless device_memory() is true.
  virtual Pending start(const CommCall& call) = 0;
  /// `call.peer` is the color and `call.tag` the key.
  virtual std::unique_ptr<Communicator> make_split(const CommCall& call, std::string name) = 0;

 private:
  Pending begin(const CommCall& call);
  CommCounters counters_;
};

/// The communicator of a job of one rank.
MT_API std::unique_ptr<Communicator> make_self_communicator();

}  // namespace mtrain
