// Sockets and addresses for rendezvous.h. A Socket owns its descriptor; everything else is a value
// or a stateless function.
#pragma once
#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

namespace mtrain::tcp {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void close();

 private:
  int fd_ = -1;
};

struct Address {
  sockaddr_storage where{};
  socklen_t size = 0;

  int family() const { return where.ss_family; }
  int port() const;
  Address with_port(int port) const;
  /// Whether it is a loopback address.
  bool loopback() const;
  /// The address in numbers, without the port.
  std::string text() const;
  bool operator==(const Address& other) const;
};

/// Resolves a name or address; `numeric`: no name lookup. On failure returns none, with the reason
/// in `why`; Error(config) without `why`.
std::vector<Address> resolve(const std::string& host, int port, bool numeric = false,
                             std::string* why = nullptr);
/// The wildcard address of a family; AF_INET6 includes AF_INET.
Address any_address(int family, int port);

/// The address of one end of a connection: ::getpeername or ::getsockname.
Address address_of(const Socket& socket, decltype(&::getpeername) which);

/// Non-blocking, like all sockets here. Closed, with the reason in errno, if listening fails.
Socket listen_at(const Address& address);
/// The next waiting connection; closed if there is none.
Socket accept_next(const Socket& listener);
/// A connection in progress; closed, with the reason in errno, if it has failed already.
Socket begin_connection(const Address& address);
/// For a connection that was in progress and is ready for writing: 0, or the error.
int connection_error(const Socket& socket);

}  // namespace mtrain::tcp
