#include "mtrain/message_comm/batch.h"

namespace mtrain::message_comm {

void Batch::send(Channel& channel, const void* data, size_t bytes, int to, int tag) {
  messages_.push_back({channel.send(data, bytes, to, tag), to});
}

void Batch::recv(Channel& channel, void* data, size_t bytes, int from, int tag) {
  messages_.push_back({channel.recv(data, bytes, from, tag), from});
}

bool Batch::done(size_t index) {
  auto& transfer = messages_[index].transfer;
  if (transfer && transfer->done()) transfer.reset();
  return !transfer;
}

bool Batch::done() {
  for (size_t i = 0; i < messages_.size(); ++i)
    if (!done(i)) return false;
  return true;
}

std::vector<int> Batch::peers_missing() {
  std::vector<int> missing;
  for (size_t i = 0; i < messages_.size(); ++i)
    if (!done(i)) missing.push_back(messages_[i].peer);
  return missing;
}

std::vector<int> Batch::peers_gone() {
  std::vector<int> gone;
  for (size_t i = 0; i < messages_.size(); ++i)
    if (!done(i) && messages_[i].transfer->peer_gone()) gone.push_back(messages_[i].peer);
  return gone;
}

void Batch::cancel() noexcept {
  for (Message& message : messages_)
    if (message.transfer) message.transfer->cancel();
}

}  // namespace mtrain::message_comm
