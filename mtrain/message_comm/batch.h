// Batch: messages that are under way together. Owns the transfers and not their memory. For one
// thread.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "mtrain/message_comm/transport.h"

namespace mtrain::message_comm {

class Batch {
 public:
  /// Start a message and add it; see Channel. The memory must stay until done(), or cancel() for a
  /// receive.
  void send(Channel& channel, const void* data, size_t bytes, int to, int tag);
  void recv(Channel& channel, void* data, size_t bytes, int from, int tag);

  /// Whether every message is done; true without any. Moves what can be moved.
  bool done();
  /// The same of message `index`, in the order in which they were added.
  bool done(size_t index);
  /// Ranks of the channel that the messages not done come from or go to.
  std::vector<int> peers_missing();
  /// Those ranks whose process is known to have ended.
  std::vector<int> peers_gone();
  /// Gives up the receives that are not done.
  void cancel() noexcept;

 private:
  struct Message {
    std::unique_ptr<Transfer> transfer;  // null: done, or given up
    int peer = 0;
  };
  std::vector<Message> messages_;
};

}  // namespace mtrain::message_comm
