// The door to MPI: nonblocking messages of bytes and the life of the process's MPI session. The
// only part that knows mpi.h; plugins/comm/tcp puts another transport in its place. Everything is
// for one thread at a time, as MPI_THREAD_SERIALIZED asks. Failing MPI calls throw Error(peer).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace mtrain::mpi {

/// "mpi": what a communicator over it is called.
std::string_view transport_kind();

/// Messages under way. Their memory must stay until done(), or cancel() for those received.
class Batch {
 public:
  Batch();
  ~Batch();
  Batch(Batch&&) noexcept;
  Batch& operator=(Batch&&) noexcept;

  /// Lets MPI work; true when every message is through.
  bool done();
  /// Whether message `index` is through. Lets MPI work.
  bool done(size_t index);
  /// Ranks of the channel that the messages not yet through come from or go to.
  std::vector<int> peers_missing() const;
  /// Those of them whose process is gone, so that nothing of this will ever be through, as far as
  /// the transport knows: MPI ends such a job by itself.
  std::vector<int> peers_gone() const;
  /// Gives up what is not through.
  void cancel() noexcept;

 private:
  friend class Channel;
  struct State;
  std::unique_ptr<State> state_;
};

/// A group of ranks with messages of its own.
class Channel {
 public:
  struct Handle;
  explicit Channel(std::unique_ptr<Handle> handle);
  ~Channel();
  Channel(Channel&&) noexcept;

  int rank() const;
  int size() const;
  /// At most kMostBytes each; tags 0..kMostTag. Messages of one sender, receiver and tag are
  /// matched in order.
  static constexpr size_t kMostBytes = 1u << 30;
  static constexpr int kMostTag = 3 * 32768 - 1;
  void send(const void* data, size_t bytes, int to, int tag, Batch& batch) const;
  void recv(void* data, size_t bytes, int from, int tag, Batch& batch) const;
  /// Through once every rank of the channel has begun one.
  void barrier(Batch& batch) const;
  /// Collective over `ranks` alone: their own channel, in this order.
  Channel sub(std::span<const int> ranks, int tag) const;

 private:
  std::unique_ptr<Handle> handle_;
};

/// MPI from MPI_Init_thread to MPI_Finalize; one per process ever. Throws Error(plugin) when MPI
/// cannot be had.
class Process {
 public:
  Process();
  ~Process();  // finalizes unless leave() was called
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  Channel world() const;
  /// The process will end without MPI_Finalize: the job has failed.
  void leave() { finalize_ = false; }
  /// Ends every process of the job.
  [[noreturn]] void abort(int status) noexcept;

 private:
  bool finalize_ = true;
};

}  // namespace mtrain::mpi
