#include "wires.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "mtrain/base/error.h"

namespace mtrain::mpi {

namespace {
constexpr uint32_t kMagic = 0x4D545752, kEnd = 0x4D545845;  // "MTWR", "MTXE": end with the status in `tag`
constexpr size_t kMostBytes = size_t{1} << 31;
}  // namespace

Wires::Wires(int rank, std::vector<int> descriptors) : rank_(rank), wires_(descriptors.size()) {
  for (size_t r = 0; r < descriptors.size(); ++r) {
    wires_[r].fd = descriptors[r];
    if (descriptors[r] >= 0) ::fcntl(descriptors[r], F_SETFL, ::fcntl(descriptors[r], F_GETFL) | O_NONBLOCK);
  }
}

Wires::~Wires() {
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  auto unsent = [&] { return std::any_of(wires_.begin(), wires_.end(), [](const Wire& w) { return w.fd >= 0 && !w.out.empty(); }); };
  while (unsent() && std::chrono::steady_clock::now() < end) {
    for (Wire& wire : wires_) push(wire);
    ::usleep(100);
  }
  for (Wire& wire : wires_) close(wire);
}

// What is under way on a wire whose other end is gone stays so: those who watch ranks say what became of it.
void Wires::close(Wire& wire) {
  if (wire.fd >= 0) ::close(wire.fd);
  wire.fd = -1;
}

void Wires::send(std::shared_ptr<Request> request) {
  Wire& wire = wires_[static_cast<size_t>(request->peer)];
  wire.out.push_back(std::move(request));
  push(wire);
}

bool Wires::fits(const Request& request, const Head& head, int from) {
  return request.channel == head.channel && request.tag == head.tag && (request.peer == -1 || request.peer == from);
}

void Wires::deliver(Arrived& message, Request& request) {
  MT_CHECK(message.content.size() <= request.bytes, "a message of ", message.content.size(), " bytes for ", request.bytes);
  if (!message.content.empty()) std::memcpy(request.data, message.content.data(), message.content.size());
  request.moved = message.content.size();
  request.done = true;
}

void Wires::receive(std::shared_ptr<Request> request) {
  for (auto at = arrived_.begin(); at != arrived_.end(); ++at) {
    Arrived& message = **at;
    if (message.claimed || !fits(*request, message.head, message.from)) continue;
    if (message.whole) deliver(message, *request);
    else message.claimed = request;
    arrived_.erase(at);
    return;
  }
  wanted_.push_back(std::move(request));
}

void Wires::forget(const std::shared_ptr<Request>& request) {
  if (request->done || !request->kept.empty()) return;
  if (!request->receives) {  // its memory may go
    request->kept.assign(request->data, request->data + request->bytes);
    request->data = request->kept.data();
    return;
  }
  wanted_.remove(request);
  request->kept.resize(request->bytes);  // what is arriving for it goes here
  request->data = request->kept.data();
}

void Wires::push(Wire& wire) {
  while (wire.fd >= 0 && !wire.out.empty()) {
    Request& request = *wire.out.front();
    if (wire.head_sent == 0) wire.head_out = {request.channel, request.bytes, request.tag, kMagic};
    iovec parts[2] = {{reinterpret_cast<char*>(&wire.head_out) + wire.head_sent, sizeof(Head) - wire.head_sent},
                      {request.data + request.moved, request.bytes - request.moved}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    ssize_t sent = ::sendmsg(wire.fd, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) return close(wire);
    size_t of_head = std::min(static_cast<size_t>(sent), parts[0].iov_len);
    wire.head_sent += of_head;
    request.moved += static_cast<size_t>(sent) - of_head;
    if (wire.head_sent < sizeof(Head) || request.moved < request.bytes) continue;
    request.done = true;
    wire.head_sent = 0;
    wire.out.pop_front();
  }
}

void Wires::begin_message(int from, Wire& wire) {
  const Head& head = wire.head_in;
  if (head.magic == kEnd) ::_exit(static_cast<int>(head.tag));
  MT_USER_CHECK(head.magic == kMagic && head.bytes <= kMostBytes, ErrorClass::peer,
                cat("what comes from rank ", from, " is no message"), "see that all ranks run the same mtrain");
  auto wanted = std::find_if(wanted_.begin(), wanted_.end(), [&](const auto& r) { return fits(*r, head, from); });
  if (wanted != wanted_.end()) {
    wire.into = *wanted;
    wanted_.erase(wanted);
    MT_CHECK(head.bytes <= wire.into->bytes, "a message of ", head.bytes, " bytes for ", wire.into->bytes);
  } else {
    wire.kept = std::make_shared<Arrived>(Arrived{head, from, std::vector<std::byte>(head.bytes), false, nullptr});
    arrived_.push_back(wire.kept);
  }
  wire.got = 0;
}

void Wires::end_message(Wire& wire) {
  if (wire.into) {
    wire.into->moved = wire.got;
    wire.into->done = true;
  } else if (wire.kept->claimed) {
    deliver(*wire.kept, *wire.kept->claimed);
  } else {
    wire.kept->whole = true;
  }
  wire.into.reset();
  wire.kept.reset();
  wire.head_got = 0;
}

void Wires::pull(int from, Wire& wire) {
  while (wire.fd >= 0) {
    bool in_head = wire.head_got < sizeof(Head);
    char* at = reinterpret_cast<char*>(&wire.head_in) + wire.head_got;
    size_t left = sizeof(Head) - wire.head_got;
    if (!in_head) {
      at = reinterpret_cast<char*>(wire.into ? wire.into->data : wire.kept->content.data()) + wire.got;
      left = wire.head_in.bytes - wire.got;
    }
    ssize_t got = ::recv(wire.fd, at, left, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) return close(wire);
    if (in_head) {
      wire.head_got += static_cast<size_t>(got);
      if (wire.head_got < sizeof(Head)) continue;
      begin_message(from, wire);
    } else {
      wire.got += static_cast<size_t>(got);
    }
    if (wire.got == wire.head_in.bytes) end_message(wire);
  }
}

void Wires::pump() {
  std::vector<pollfd> ready;
  std::vector<size_t> ranks;
  for (size_t r = 0; r < wires_.size(); ++r) {
    if (wires_[r].fd < 0) continue;
    ready.push_back({wires_[r].fd, static_cast<short>(POLLIN | (wires_[r].out.empty() ? 0 : POLLOUT)), 0});
    ranks.push_back(r);
  }
  if (ready.empty() || ::poll(ready.data(), ready.size(), 0) <= 0) return;
  for (size_t i = 0; i < ready.size(); ++i) {
    Wire& wire = wires_[ranks[i]];
    if ((ready[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) pull(static_cast<int>(ranks[i]), wire);
    if ((ready[i].revents & POLLOUT) != 0) push(wire);
  }
}

void Wires::tell_end(int status) noexcept {
  for (Wire& wire : wires_) {
    if (wire.fd < 0 || wire.head_sent > 0) continue;  // half a message is on its way: it ends by itself
    Head head{0, 0, static_cast<uint32_t>(status), kEnd};
    static_cast<void>(::send(wire.fd, &head, sizeof head, MSG_NOSIGNAL));
  }
}

}  // namespace mtrain::mpi
