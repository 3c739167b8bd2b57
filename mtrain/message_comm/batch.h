// Batch: a set of messages in transfer. Owns the transfers, but not their memory. For one thread.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "mtrain/message_comm/transport.h"

namespace mtrain::message_comm {

class Batch {
 public:
  /// Start a message and add it to the batch; see Channel. The memory must stay valid until done()
  /// returns true or, for a receive, until cancel().
  void send(Channel& channel, const void* data, size_t bytes, int to, int tag);
  void recv(Channel& channel, void* data, size_t bytes, int from, int tag);

  /// Whether all messages are done; true if there are none. Makes progress without blocking.
  bool done();
  /// The same for message `index`, in the order of adding.
  bool done(size_t index);
  /// The other ranks of the unfinished messages.
  std::vector<int> peers_missing();
  /// The ranks of peers_missing() whose process is known to have ended.
  std::vector<int> peers_gone();
  /// Cancels the unfinished receives.
  void cancel() noexcept;

 private:
  struct Message {
    std::unique_ptr<Transfer> transfer;  // null: done or cancelled
    int peer = 0;
  };
  std::vector<Message> messages_;
};

}  // namespace mtrain::message_comm
