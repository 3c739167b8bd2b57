#include "socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "mtrain/base/error.h"

namespace mtrain::tcp {

namespace {

constexpr int kBacklog = 1024;

const sockaddr* raw(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.where);
}
const sockaddr_in& v4(const Address& address) {
  return reinterpret_cast<const sockaddr_in&>(address.where);
}
const sockaddr_in6& v6(const Address& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.where);
}

}  // namespace

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

int Address::port() const {
  return ntohs(family() == AF_INET6 ? v6(*this).sin6_port : v4(*this).sin_port);
}

Address Address::with_port(int port) const {
  Address out = *this;
  auto bytes = htons(static_cast<uint16_t>(port));
  if (family() == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(out.where).sin6_port = bytes;
  else
    reinterpret_cast<sockaddr_in&>(out.where).sin_port = bytes;
  return out;
}

bool Address::loopback() const {
  if (family() == AF_INET) return (ntohl(v4(*this).sin_addr.s_addr) >> 24) == 127;
  if (family() != AF_INET6) return false;
  const in6_addr& address = v6(*this).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&address) ||
         (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
}

std::string Address::text() const {
  char text[NI_MAXHOST] = "";
  if (::getnameinfo(raw(*this), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
    return "an unknown address";
  return text;
}

bool Address::operator==(const Address& other) const {
  return family() == other.family() && port() == other.port() && text() == other.text();
}

std::vector<Address> resolve(const std::string& host, int port, bool numeric, std::string* why) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = numeric ? AI_NUMERICHOST : 0;
  int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  const std::string unknown = error == 0 ? ""
                                         : cat("the address '", printable(host, 80),
                                               "' cannot be resolved: ", ::gai_strerror(error));
  if (why) *why = unknown;
  MT_USER_CHECK(error == 0 || why, ErrorClass::config, unknown,
                "set MASTER_ADDR to the name or address of the first rank's machine");
  std::vector<Address> all;
  for (const addrinfo* at = found; at; at = at->ai_next) {
    if (at->ai_family != AF_INET && at->ai_family != AF_INET6) continue;
    Address address;
    std::memcpy(&address.where, at->ai_addr, at->ai_addrlen);
    address.size = at->ai_addrlen;
    if (std::find(all.begin(), all.end(), address) == all.end()) all.push_back(address);
  }
  return all;
}

Address any_address(int family, int port) {
  Address address;
  address.where.ss_family =
      static_cast<sa_family_t>(family);  // the rest is 0, which means any address
  address.size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return address.with_port(port);
}

Address address_of(const Socket& socket, decltype(&::getpeername) which) {
  Address address;
  address.size = sizeof address.where;
  which(socket.get(), reinterpret_cast<sockaddr*>(&address.where), &address.size);
  return address;
}

Socket listen_at(const Address& address) {
  Socket socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) return socket;
  int on = 1, off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6)
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(socket.get(), raw(address), address.size) == 0 &&
      ::listen(socket.get(), kBacklog) == 0)
    return socket;
  int why = errno;
  socket.close();
  errno = why;
  return socket;
}

Socket accept_next(const Socket& listener) {
  return Socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

Socket begin_connection(const Address& address) {
  Socket socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open() || ::connect(socket.get(), raw(address), address.size) == 0 ||
      errno == EINPROGRESS)
    return socket;
  int why = errno;
  socket.close();
  errno = why;
  return socket;
}

int connection_error(const Socket& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  // A connection over loopback to a port without a listener may connect to itself (TCP simultaneous
  // open).
  if (error == 0 && address_of(socket, ::getpeername) == address_of(socket, ::getsockname))
    return ECONNREFUSED;
  return error;
}

}  // namespace mtrain::tcp
