// Sockets and addresses for rendezvous.h. A Socket owns its descriptor; all else are values and
// stateless functions.
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
  /// Of this machine alone.
  bool loopback() const;
  /// The address in numbers, without the port.
  std::string text() const;
  bool operator==(const Address& other) const;
};

/// What a name or address stands for; `numeric`: no name is looked up. When it stands for nothing:
/// none, and `why` says the reason; Error(config) without `why`.
std::vector<Address> resolve(const std::string& host, int port, bool numeric = false,
                             std::string* why = nullptr);
/// All of this machine's addresses of a family, AF_INET6 with those of AF_INET.
Address any_address(int family, int port);

/// Of one end of a connection: ::getpeername or ::getsockname.
Address address_of(const Socket& socket, decltype(&::getpeername) which);

/// Not blocking, as all sockets here. Closed, and errno says why, when nobody can listen there.
Socket listen_at(const Address& address);
/// The next connection that waits; closed when there is none.
Socket accept_next(const Socket& listener);
/// A connection under way; closed, and errno says why, when it has failed already.
Socket begin_connection(const Address& address);
/// Of a connection that was under way and is ready for writing: 0, or why it failed.
int connection_error(const Socket& socket);

}  // namespace mtrain::tcp
