#include "mtrain/message_comm/send_recv.h"

#include <algorithm>
#include <cstring>

namespace mtrain::message_comm {

namespace {

constexpr int kHeaderTags = 32768, kDataTags = 2 * 32768;
constexpr size_t kPieceBytes = 16 << 20;

size_t bytes_of(const CommCall& call) {
  return static_cast<size_t>(call.count) * size_of(call.dtype);
}

// The sender numbers its messages to each rank, and the tag of the data is that number: a receiver
// may receive a user's tags in any order.
int data_tag(uint64_t number) { return kDataTags + static_cast<int>(number % 32768); }

template <class Fn>
void for_pieces(size_t bytes, Fn&& fn) {
  for (size_t begin = 0; begin < bytes; begin += kPieceBytes)
    fn(begin, std::min(kPieceBytes, bytes - begin));
}

}  // namespace

SendCall::SendCall(std::shared_ptr<Group> group, const CommCall& call)
    : StartedCall(group, call, ++group->num_sent[static_cast<size_t>(call.peer)]),
      header_(new std::byte[kMostHeaderBytes]) {
  Header header{.number = number_,
                .count = call.count,
                .peer = call.peer,
                .tag = call.tag,
                .kind = call.kind,
                .dtype = call.dtype};
  size_t bytes = bytes_of(call), length = sizeof(Header);
  std::memcpy(header_.get(), &header, length);
  bool small = bytes <= Header::kMostInline;
  if (small && bytes > 0) std::memcpy(header_.get() + length, call.in, bytes);
  batch_.send(*group_->channel, header_.get(), length + (small ? bytes : 0), call.peer,
              kHeaderTags + call.tag);
  if (small) return;
  for_pieces(bytes, [&](size_t begin, size_t size) {
    batch_.send(*group_->channel, static_cast<const std::byte*>(call.in) + begin, size, call.peer,
                data_tag(number_));
  });
}

void SendCall::release() noexcept {
  batch_.cancel();
  group_->job->keep(std::move(batch_), std::move(header_));
}

RecvCall::RecvCall(std::shared_ptr<Group> group, const CommCall& call)
    : StartedCall(group, call, ++group->num_received[static_cast<size_t>(call.peer)]),
      header_(new std::byte[kMostHeaderBytes]) {
  arriving_.recv(*group_->channel, header_.get(), kMostHeaderBytes, call.peer,
                 kHeaderTags + call.tag);
}

bool RecvCall::step() {
  if (!arrived_) {
    if (!arriving_.done()) return false;
    Header theirs;
    std::memcpy(static_cast<void*>(&theirs), header_.get(), sizeof(Header));
    if (!fits(call_.peer, theirs, call_)) return false;
    arrived_ = true;
    size_t bytes = bytes_of(call_);
    if (bytes <= Header::kMostInline) {
      if (bytes > 0) std::memcpy(call_.out, header_.get() + sizeof(Header), bytes);
    } else {
      for_pieces(bytes, [&](size_t begin, size_t size) {
        batch_.recv(*group_->channel, static_cast<std::byte*>(call_.out) + begin, size, call_.peer,
                    data_tag(theirs.number));
      });
    }
  }
  return batch_.done();
}

void RecvCall::release() noexcept {
  arriving_.cancel();
  batch_.cancel();
  group_->job->keep(std::move(arriving_), std::move(header_));
  group_->job->keep(std::move(batch_), nullptr);
}

}  // namespace mtrain::message_comm
