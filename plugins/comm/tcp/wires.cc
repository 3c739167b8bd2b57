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
#include "mtrain/base/log.h"

namespace mtrain::tcp {

namespace {
constexpr size_t kMostBytes = size_t{1} << 30;
constexpr size_t kMostUnasked = size_t{1} << 16;  // a longer message needs an offer first
}  // namespace

enum class Wires::Kind : uint32_t {
  message = 0x4D545752,  // its bytes follow
  offer,                 // announces a message of this many bytes
  take,                  // accepts the receiver's offer: the message may be sent
  give,                  // the offered message: its bytes follow
  end                    // ends the job, with the status in `tag`
};

namespace {
/// A rank cannot end the others with success: an exit status has only the lowest byte.
int end_status(int from, uint32_t status) {
  if (status > 0 && status <= 255) return static_cast<int>(status);
  log_error("rank ", from, " ends the job with status ", status, ", but 1 to 255 are allowed");
  return static_cast<int>(ErrorClass::peer);
}
}  // namespace

Wires::Wires(int rank, std::vector<int> descriptors) : rank_(rank), wires_(descriptors.size()) {
  for (size_t r = 0; r < descriptors.size(); ++r) {
    wires_[r].fd = descriptors[r];
    if (descriptors[r] >= 0)
      ::fcntl(descriptors[r], F_SETFL, ::fcntl(descriptors[r], F_GETFL) | O_NONBLOCK);
  }
}

Wires::~Wires() {
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  auto unsent = [&] {
    return std::any_of(wires_.begin(), wires_.end(),
                       [](const Wire& w) { return w.fd >= 0 && !w.out.empty(); });
  };
  while (unsent() && std::chrono::steady_clock::now() < end) {
    for (Wire& wire : wires_) push(wire);
    ::usleep(100);
  }
  for (Wire& wire : wires_) close(wire);
}

// Messages in progress on a closed connection stay incomplete; the watch reports the failed rank.
void Wires::close(Wire& wire) {
  if (wire.fd >= 0) ::close(wire.fd);
  wire.fd = -1;
}

void Wires::send(std::shared_ptr<Request> request) {
  Wire& wire = wire_of(request->peer);
  Head head{request->channel, request->bytes, 0, request->tag, Kind::message};
  if (request->bytes > kMostUnasked) {
    head.kind = Kind::offer;
    head.offer = ++num_offers_;
    offered_[{request->peer, head.offer}] = std::move(request);
  }
  wire.out.push_back({head, std::move(request)});
  push(wire);
}

void Wires::refuse(int from, const std::string& what) {
  close(wire_of(from));
  throw Error(ErrorClass::peer, cat("rank ", from, " sends ", what),
              "check that all ranks run the same mtrain");
}

void Wires::take(const Head& offer, int from, std::shared_ptr<Request> request) {
  if (offer.bytes > request->bytes)
    refuse(from, cat(offer.bytes, " bytes where ", request->bytes, " are expected"));
  if (!taken_.try_emplace({from, offer.offer}, Taken{std::move(request), offer.bytes}).second)
    refuse(from, "a repeated offer");
  wire_of(from).out.push_back(
      {Head{offer.channel, 0, offer.offer, offer.tag, Kind::take}, nullptr});
  push(wire_of(from));
}

void Wires::give(int to, uint64_t offer) {
  auto at = offered_.find({to, offer});
  if (at == offered_.end()) refuse(to, "an acceptance for a message that was not offered to it");
  const Request& request = *at->second;
  wire_of(to).out.push_back(
      {Head{request.channel, request.bytes, offer, request.tag, Kind::give}, at->second});
  offered_.erase(at);
  push(wire_of(to));
}

bool Wires::fits(const Request& request, const Head& head, int from) {
  return request.channel == head.channel && request.tag == head.tag &&
         (request.peer == -1 || request.peer == from);
}

void Wires::deliver(const Arrived& message, Request& request) {
  if (message.content.size() > request.bytes)
    refuse(message.from,
           cat(message.content.size(), " bytes where ", request.bytes, " are expected"));
  if (!message.content.empty())
    std::memcpy(request.data, message.content.data(), message.content.size());
  request.moved = message.content.size();
  request.done = true;
}

void Wires::receive(std::shared_ptr<Request> request) {
  for (auto at = arrived_.begin(); at != arrived_.end(); ++at) {
    const Arrived& message = **at;
    if (message.claimed || !fits(*request, message.head, message.from)) continue;
    std::shared_ptr<Arrived> kept = *at;
    arrived_.erase(at);
    if (kept->head.kind == Kind::offer)
      take(kept->head, kept->from, std::move(request));
    else if (kept->whole)
      deliver(*kept, *request);
    else
      kept->claimed = std::move(request);
    return;
  }
  wanted_.push_back(std::move(request));
}

void Wires::forget(const std::shared_ptr<Request>& request) {
  if (request->done || !request->kept.empty()) return;
  if (!request->receives) {  // its memory may be freed
    request->kept.assign(request->data, request->data + request->bytes);
    request->data = request->kept.data();
    return;
  }
  wanted_.remove(request);
  request->kept.resize(request->bytes);  // the arriving bytes are stored here
  request->data = request->kept.data();
}

void Wires::push(Wire& wire) {
  while (wire.fd >= 0 && !wire.out.empty()) {
    Outgoing& next = wire.out.front();
    iovec parts[2] = {
        {reinterpret_cast<char*>(&next.head) + wire.head_sent, sizeof(Head) - wire.head_sent},
        {nullptr, 0}};
    if (next.body)
      parts[1] = {next.body->data + next.body->moved, next.body->bytes - next.body->moved};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    ssize_t sent = ::sendmsg(wire.fd, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) return close(wire);
    size_t of_head = std::min(static_cast<size_t>(sent), parts[0].iov_len);
    wire.head_sent += of_head;
    if (next.body) next.body->moved += static_cast<size_t>(sent) - of_head;
    if (static_cast<size_t>(sent) < parts[0].iov_len + parts[1].iov_len) continue;
    if (next.body) next.body->done = true;
    wire.head_sent = 0;
    wire.out.pop_front();
  }
}

bool Wires::begin_message(int from, Wire& wire) {
  const Head& head = wire.head_in;
  wire.got = 0;
  switch (head.kind) {
    case Kind::end:
      ended_ = end_status(from, head.tag);
      return false;
    case Kind::take:
      give(from, head.offer);
      return false;
    case Kind::give: {
      auto at = taken_.find({from, head.offer});
      if (at == taken_.end()) refuse(from, "a message without a receiver");
      if (head.bytes != at->second.bytes)
        refuse(from, cat(head.bytes, " bytes after an offer of ", at->second.bytes));
      wire.into = std::move(at->second.request);
      taken_.erase(at);
      return true;
    }
    case Kind::message:
      if (head.bytes > kMostUnasked)
        refuse(from, cat("a message of ", head.bytes, " bytes without an offer"));
      break;
    case Kind::offer:
      if (head.bytes > kMostBytes) refuse(from, cat("an offer of ", head.bytes, " bytes"));
      break;
    default:
      refuse(from, "invalid message data");
  }
  bool follows = head.kind == Kind::message;
  auto wanted = std::find_if(wanted_.begin(), wanted_.end(),
                             [&](const auto& r) { return fits(*r, head, from); });
  if (wanted == wanted_.end()) {
    std::vector<std::byte> content(follows ? head.bytes : 0);
    arrived_.push_back(
        std::make_shared<Arrived>(Arrived{head, from, std::move(content), false, nullptr}));
    if (follows) wire.kept = arrived_.back();
    return follows;
  }
  std::shared_ptr<Request> request = *wanted;
  wanted_.erase(wanted);
  if (!follows) return take(head, from, std::move(request)), false;
  if (head.bytes > request->bytes)
    refuse(from, cat(head.bytes, " bytes where ", request->bytes, " are expected"));
  wire.into = std::move(request);
  return true;
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
  while (wire.fd >= 0 && !ended_) {
    bool in_head = wire.head_got < sizeof(Head);
    char* at = reinterpret_cast<char*>(&wire.head_in) + wire.head_got;
    size_t left = sizeof(Head) - wire.head_got;
    if (!in_head) {
      at = reinterpret_cast<char*>(wire.into ? wire.into->data : wire.kept->content.data()) +
           wire.got;
      left = wire.head_in.bytes - wire.got;
    }
    ssize_t got = ::recv(wire.fd, at, left, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) return close(wire);
    if (in_head) {
      wire.head_got += static_cast<size_t>(got);
      if (wire.head_got < sizeof(Head)) continue;
      if (!begin_message(from, wire)) {
        wire.head_got = 0;
        continue;
      }
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
    ready.push_back(
        {wires_[r].fd, static_cast<short>(POLLIN | (wires_[r].out.empty() ? 0 : POLLOUT)), 0});
    ranks.push_back(r);
  }
  if (ready.empty() || ::poll(ready.data(), ready.size(), 0) <= 0) return;
  for (size_t i = 0; i < ready.size(); ++i) {
    Wire& wire = wires_[ranks[i]];
    if ((ready[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
      pull(static_cast<int>(ranks[i]), wire);
    if ((ready[i].revents & POLLOUT) != 0) push(wire);
  }
}

void Wires::request_end(int status) noexcept {
  for (Wire& wire : wires_) {
    if (wire.fd < 0 || wire.head_sent > 0) continue;  // a partly sent message completes by itself
    Head head{0, 0, 0, static_cast<uint32_t>(status), Kind::end};
    static_cast<void>(::send(wire.fd, &head, sizeof head, MSG_NOSIGNAL));
  }
}

}  // namespace mtrain::tcp
