// Transport: the interface that MessageCommunicator (message_communicator.h) needs to implement all
// collectives: messages of bytes between processes, each with a tag. plugins/comm/mpi and
// plugins/comm/tcp are implementations; this file is the whole contract.
//
// - Nothing here blocks, except the construction of a transport and Channel::sub(). Messages move
//   when the caller asks whether one is done, so a transport needs no thread of its own.
// - Messages of one channel, sender, receiver and tag arrive in the order in which they were sent
//   and go to the receives in the order in which those were started. Others may overtake them.
// - A message may be sent before its receive is started. The transport then keeps it, or leaves it
//   unsent until the receive is started; either way the sender's send() returns at once.
// - Anything but Transport::abort() and the noexcept functions may throw Error(peer) when the
//   connection to a rank is lost, and the job then fails.
// - Thread-safety: a transport and its objects are used by one thread at a time.
// - Lifetime: the transport outlives its channels and their transfers.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain::message_comm {

/// A started message. Its memory belongs to the transport until done() has returned true or, for a
/// receive, cancel() was called. Destruction before that cancels a receive; the memory of a send
/// must then stay valid until the transport is destroyed or the job ends.
class MT_API Transfer {
 public:
  virtual ~Transfer();
  /// Whether the message has been received, or the memory of a send is no longer needed. Makes
  /// progress of this message and others without blocking.
  virtual bool done() = 0;
  /// Whether the process of the other rank is known to have ended, so that the message will never
  /// be done. Optional for a transport whose launcher ends the whole job in that case.
  virtual bool peer_gone() const { return false; }
  /// Cancels a receive: its memory is not written any more. Does nothing for a send. Only the
  /// destructor is called afterwards.
  virtual void cancel() noexcept = 0;
};

/// A group of ranks whose messages are separate from those of all other channels.
class MT_API Channel {
 public:
  virtual ~Channel();
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// The largest size of a message, and the largest tag; tags start at 0.
  static constexpr size_t kMaxBytes = size_t{1} << 30;
  static constexpr int kMaxTag = 3 * 32768 - 1;
  /// As `from` of recv(): any rank.
  static constexpr int kAnyRank = -1;

  /// Starts a message to rank `to`. REQUIRES: `to` is another rank.
  virtual std::unique_ptr<Transfer> send(const void* data, size_t bytes, int to, int tag) = 0;
  /// Starts to receive a message of at most `bytes` bytes.
  virtual std::unique_ptr<Transfer> recv(void* data, size_t bytes, int from, int tag) = 0;
  /// A channel of a subset of this channel's ranks, in this order. Collective over these ranks.
  virtual std::unique_ptr<Channel> sub(std::span<const int> ranks, int tag) = 0;
};

/// The processes of a job and their connections. Created once per process; the constructor connects
/// the processes, or throws Error(plugin), Error(config) or Error(peer). The destructor is called
/// when every rank has finished.
class MT_API Transport {
 public:
  virtual ~Transport();
  /// Communicator::kind() of communicators over it: "mpi", "tcp".
  virtual std::string_view kind() const = 0;
  /// A new channel of all ranks; each call makes another one. All ranks call it equally often.
  virtual std::unique_ptr<Channel> world() = 0;
  /// Ends every process of the job that has not ended yet, with this status (not 0). Called when
  /// the job has failed, instead of the destructor.
  [[noreturn]] virtual void abort(int status) noexcept = 0;
};

}  // namespace mtrain::message_comm
