#include "message.h"

#include <algorithm>
#include <cstring>

namespace mtrain::mpi {

namespace {

constexpr int kHeaderTags = 32768, kDataTags = 2 * 32768;
constexpr size_t kPieceBytes = 16 << 20;

size_t bytes_of(const CommCall& call) {
  return static_cast<size_t>(call.count) * size_of(call.dtype);
}

// A pair's messages are numbered by the sender, and data are found by that number: receivers may
// take tags in any order.
int data_tag(uint64_t number) { return kDataTags + static_cast<int>(number % 32768); }

template <class Fn>
void for_pieces(size_t bytes, Fn&& fn) {
  for (size_t begin = 0; begin < bytes; begin += kPieceBytes)
    fn(begin, std::min(kPieceBytes, bytes - begin));
}

}  // namespace

SendWork::SendWork(std::shared_ptr<Group> group, const CommCall& call)
    : Work(group, call, ++group->num_sent[static_cast<size_t>(call.peer)]),
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
  group_->channel.send(header_.get(), length + (small ? bytes : 0), call.peer,
                       kHeaderTags + call.tag, batch_);
  if (small) return;
  for_pieces(bytes, [&](size_t begin, size_t size) {
    group_->channel.send(static_cast<const std::byte*>(call.in) + begin, size, call.peer,
                         data_tag(number_), batch_);
  });
}

void SendWork::release() noexcept {
  batch_.cancel();
  group_->job->keep(std::move(batch_), std::move(header_));
}

RecvWork::RecvWork(std::shared_ptr<Group> group, const CommCall& call)
    : Work(group, call, ++group->num_received[static_cast<size_t>(call.peer)]),
      header_(new std::byte[kMostHeaderBytes]) {
  group_->channel.recv(header_.get(), kMostHeaderBytes, call.peer, kHeaderTags + call.tag,
                       arriving_);
}

bool RecvWork::step() {
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
        group_->channel.recv(static_cast<std::byte*>(call_.out) + begin, size, call_.peer,
                             data_tag(theirs.number), batch_);
      });
    }
  }
  return batch_.done();
}

void RecvWork::release() noexcept {
  arriving_.cancel();
  batch_.cancel();
  group_->job->keep(std::move(arriving_), std::move(header_));
  group_->job->keep(std::move(batch_), nullptr);
}

}  // namespace mtrain::mpi
