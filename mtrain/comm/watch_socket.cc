#include "mtrain/comm/watch_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "mtrain/base/authentication.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain {

namespace {

constexpr size_t kMostContent = 1 << 20, kMostUnsent = 4 << 20;
constexpr size_t kMostOfStranger = 128;  // a rank's first message is shorter
constexpr uint32_t kMagic = 0x4D545743;  // "MTWC"
constexpr int kConnectMs = 2000;
constexpr int kMostAddresses = 8;

struct Frame {
  uint32_t magic = kMagic, type = 0, length = 0;
};

std::string reason_of(int error) {
  return std::error_code(error, std::generic_category()).message();
}

std::vector<std::string> machine_addresses() {
  std::vector<std::string> found;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return found;
  for (ifaddrs* at = first; at; at = at->ifa_next) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(at->ifa_addr)->sin_addr, text, sizeof text);
    if (found.size() < kMostAddresses) found.emplace_back(text);
  }
  freeifaddrs(first);
  return found;
}

/// Waits for a connection in progress; returns 0 or the error.
int await_connected(int descriptor) {
  pollfd wait{descriptor, POLLOUT, 0};
  if (poll(&wait, 1, kConnectMs) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

}  // namespace

WatchSocket::WatchSocket(int descriptor) : descriptor_(descriptor), most_(kMostOfStranger) {
  int on = 1;
  setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
}

WatchSocket& WatchSocket::operator=(WatchSocket&& other) noexcept {
  if (this != &other) {
    close();
    descriptor_ = std::exchange(other.descriptor_, -1);
    most_ = other.most_;
    in_ = std::move(other.in_);
    out_ = std::move(other.out_);
  }
  return *this;
}

void WatchSocket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void WatchSocket::trust() { most_ = kMostContent; }

bool WatchSocket::send(uint32_t type, std::string_view content) {
  if (!open() || content.size() > kMostContent || out_.size() + content.size() > kMostUnsent)
    return false;
  Frame frame{.type = type, .length = static_cast<uint32_t>(content.size())};
  out_.append(reinterpret_cast<const char*>(&frame), sizeof frame);
  out_.append(content);
  return true;
}

bool WatchSocket::pump() {
  if (!open()) return false;
  while (!out_.empty()) {
    ssize_t sent = ::send(descriptor_, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent > 0) out_.erase(0, static_cast<size_t>(sent));
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN)
      out_.clear();  // it may have sent something before, which is read first
    if (sent <= 0) break;
  }
  char buffer[16384];
  const size_t most = sizeof(Frame) + most_;
  for (;;) {
    if (in_.size() >= most) return true;  // the rest is read after this has been consumed
    ssize_t came = ::recv(descriptor_, buffer, std::min(sizeof buffer, most - in_.size()), 0);
    if (came > 0) in_.append(buffer, static_cast<size_t>(came));
    if (came < 0 && errno == EINTR) continue;
    if (came == 0 || (came < 0 && errno != EAGAIN)) return false;
    if (came < 0) return true;
  }
}

std::optional<WatchSocket::Message> WatchSocket::next() {
  Frame frame;
  if (in_.size() < sizeof frame) return std::nullopt;
  std::memcpy(&frame, in_.data(), sizeof frame);
  if (frame.magic != kMagic || frame.length > most_) {
    close();
    return std::nullopt;
  }
  if (in_.size() < sizeof frame + frame.length) return std::nullopt;
  Message message{frame.type, in_.substr(sizeof frame, frame.length)};
  in_.erase(0, sizeof frame + frame.length);
  return message;
}

std::string WatchEndpoint::text() const { return cat(port, " ", word, " ", join(addresses, " ")); }

std::optional<WatchEndpoint> WatchEndpoint::parse(const std::string& text) {
  std::istringstream in(text);
  WatchEndpoint endpoint;
  if (!(in >> endpoint.port >> endpoint.word)) return std::nullopt;
  for (std::string address; in >> address;) endpoint.addresses.push_back(address);
  return endpoint;
}

WatchListener::WatchListener(bool this_machine) {
  descriptor_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(this_machine ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t size = sizeof address;
  bool bound = descriptor_ >= 0 &&
               ::bind(descriptor_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
               ::listen(descriptor_, 1024) == 0 &&
               ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (!bound) {
    int error = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    throw Error(ErrorClass::io, cat("cannot listen on any TCP port: ", reason_of(error)), "");
  }
  endpoint_.port = ntohs(address.sin_port);
  endpoint_.word = random_hex(16);
  endpoint_.addresses = this_machine ? std::vector<std::string>{"127.0.0.1"} : machine_addresses();
}

WatchListener::~WatchListener() { ::close(descriptor_); }

WatchSocket WatchListener::accept() {
  int descriptor = ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  return descriptor < 0 ? WatchSocket() : WatchSocket(descriptor);
}

WatchSocket connect_to(const WatchEndpoint& endpoint, std::string& reason) {
  for (const std::string& text : endpoint.addresses) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(endpoint.port);
    if (inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1) continue;
    int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) break;
    int error = 0;
    if (::connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      error = errno == EINPROGRESS ? await_connected(descriptor) : errno;
    if (error == 0) return WatchSocket(descriptor);
    ::close(descriptor);
    reason += cat(reason.empty() ? "" : ", ", text, ": ", reason_of(error));
  }
  if (reason.empty()) reason = "the first rank's machine has no address";
  return {};
}

}  // namespace mtrain
