// Communicator: how the ranks of a group exchange memory. One object per rank and group, used by
// that rank's own thread only. All ranks of a group make the same calls in the same order; a
// started call has its place in that order when it is started. A communicator made by split() may
// outlive its parent; the world's (ThreadWorld, a plugin's first communicator) outlives all.
//
// Results are the same on every rank, to the bit, and from run to run: sums of host memory are
// taken in the order of ranks 0..n-1, in float for bf16 and fp16 (rounded once), in the type itself
// otherwise, however the implementation cuts the buffers.
//
// Device memory. A buffer made of a tensor on a device (Buffer::run) is read and written in the
// order of that run's stream: a call takes what was queued before it was started, and what is
// queued after wait() finds its result. A communicator that moves host memory copies to the host
// and back (staged_call.h), and its rank waits for that. One that moves device memory
// (device_memory()) makes the stream wait and not the rank, and adds in an order of its own, which
// is the same on all ranks and from run to run.
//
// Failures. Where a job is watched (CommContext::watch), ranks that die or fall silent are found by
// themselves and named; otherwise by the time limit. A rank that fails calls abort(); every other
// rank then gets Error(peer) from the call it waits in or makes next, naming the failed rank, its
// reason and the call. The same happens to a rank that waits longer than the time limit (its error
// says who has not come), and on all ranks when calls differ in kind, count, dtype, operation or
// root. After a failure no communicator of the job works any more.
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

/// What the maker of a job's first communicator is given.
struct CommContext {
  /// How long a rank waits in one call for the others; zero: for ever.
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};
  /// Whether and how ranks that die, stop or are stuck are looked for in the meantime.
  WatchOptions watch = {};
  /// For a communicator of devices: one of the same ranks that moves host memory.
  std::shared_ptr<Communicator> host = nullptr;
};

/// The largest tag of send and recv, which MPI promises at least.
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
  /// Its name in recipes, "thread" or "mpi"; "self" for one rank alone.
  virtual std::string_view kind() const = 0;
  /// The group's name in messages: "world", or as given to split().
  virtual const std::string& name() const = 0;
  /// The rank in the world of each rank of this group.
  virtual std::span<const int> world_ranks() const = 0;
  /// Whether calls on device memory move it from device to device. A plugin of such a communicator
  /// says so in bind() as well (Fields::device_memory).
  virtual bool device_memory() const { return false; }
  /// Memory of this rank's device that its network can read and write by itself, for what goes
  /// through groups in every step. Goes back with its last holder, after whatever uses it. Null
  /// where the communicator has none: a run's own serves as well. Throws Error(config) where the
  /// device has no room.
  virtual std::shared_ptr<void> network_memory(size_t) { return nullptr; }
  /// Tells the network that calls of this group will read and write there again and again, until
  /// the handle is let go of: before the memory is. Nothing where there is no use for that. All
  /// ranks of the group do the same with memory of their own.
  virtual std::shared_ptr<void> register_memory(void*, size_t) { return nullptr; }

  /// Combines the buffers of all ranks element by element; every rank gets the result in place.
  /// Floating types, int32, int64.
  void all_reduce(Buffer data, ReduceOp op = ReduceOp::sum) { start_all_reduce(data, op).wait(); }
  /// Puts rank r's `part` at into[r * part.count] on every rank. `part` may be its own place in
  /// `into`.
  void all_gather(ConstBuffer part, Buffer into) { start_all_gather(part, into).wait(); }
  /// Combines the buffers `data` of all ranks; rank r gets the r-th of size() equal parts of the
  /// result in `part`, which may be that place in its own `data`. `data` is left as it was
  /// otherwise.
  void reduce_scatter(ConstBuffer data, Buffer part, ReduceOp op = ReduceOp::sum) {
    start_reduce_scatter(data, part, op).wait();
  }
  /// Rank r's s-th of size() equal parts of `data` becomes rank s's r-th part of `into`. The two
  /// must not overlap.
  void all_to_all(ConstBuffer data, Buffer into) { start_all_to_all(data, into).wait(); }
  /// all_to_all with parts of send_counts[s] elements to rank s and recv_counts[r] from rank r,
  /// each back to back.
  void all_to_all_v(ConstBuffer data, std::span<const int64_t> send_counts, Buffer into,
                    std::span<const int64_t> recv_counts) {
    start_all_to_all_v(data, send_counts, into, recv_counts).wait();
  }
  /// Every rank gets the root's data.
  void broadcast(Buffer data, int root) { start_broadcast(data, root).wait(); }
  /// Sends to one rank, which calls recv with the same count and dtype. Messages of one (sender,
  /// receiver, tag) arrive in order. May wait for the receiver: where two ranks send to each other,
  /// start the sends. Not to oneself. tag: 0..kMaxTag.
  void send(ConstBuffer data, int to, int tag = 0) { start_send(data, to, tag).wait(); }
  void recv(Buffer data, int from, int tag = 0) { start_recv(data, from, tag).wait(); }
  void barrier() { start_barrier().wait(); }

  /// The same, begun and to be waited for (pending.h). Wrong arguments are Error(bug) at once.
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

  /// Collective: ranks of equal `color` form a group, ordered by `key` and then by rank here; null
  /// where color is negative. Names that differ within a group are a mismatch.
  std::unique_ptr<Communicator> split(int color, int key, std::string name = "group");

  /// Ends the job: tells every rank that this one failed. Does not throw; this rank's later calls
  /// throw Error(peer) like everyone's. The first failure of a job counts. Where the implementation
  /// ends processes itself, their exit status is that of `error_class`.
  virtual void abort(std::string_view reason, ErrorClass error_class) noexcept = 0;
  void abort(std::string_view reason) noexcept { abort(reason, ErrorClass::peer); }

  const CommCounters& counters() const { return counters_; }

  /// Throws what `call` would throw before it begins: the job's Error(peer) when it has failed.
  /// Makes no call.
  void require_alive_for(const CommCall& call) const { require_alive(call); }
  /// What it is made of, in a few words for a user: "NCCL 2.28.9". Empty: nothing worth telling.
  virtual std::string describe() const { return {}; }

  /// What this rank tells of itself to those who watch; of the job, whichever group this is. Null
  /// where nobody does.
  virtual RankActivity* activity() const { return nullptr; }

 protected:
  /// Throws the job's Error(peer) when it has failed already.
  virtual void require_alive(const CommCall& call) const = 0;
  /// Begins a checked call; this group has several ranks. On device memory only where
  /// device_memory() is true.
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
