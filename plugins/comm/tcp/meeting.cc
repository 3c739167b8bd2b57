#include "meeting.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain::mpi {

namespace {

using Clock = std::chrono::steady_clock;
constexpr uint32_t kMagic = 0x4D545450;  // "MTTP"
constexpr int kDefaultPort = 29500;      // torchrun's

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

struct Hello {
  uint32_t magic = kMagic;
  int32_t rank = 0, size = 0, port = 0;
  char job[64] = "";
};
struct Door {  // where a rank listens
  char address[64] = "";
  int32_t port = 0;
};

std::string last_error() { return std::error_code(errno, std::generic_category()).message(); }

int number_of(std::initializer_list<const char*> variables, int otherwise) {
  for (const char* name : variables) {
    const char* text = std::getenv(name);
    if (!text) continue;
    int value = -1;
    auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
    MT_USER_CHECK(error == std::errc() && *end == '\0' && value >= 0, ErrorClass::config,
                  cat(name, " is '", printable(text, 40), "', and a number is wanted"), "see how the launcher was called");
    return value;
  }
  return otherwise;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;
Addresses resolve(const char* host, int port, int flags) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  int error = ::getaddrinfo(host, std::to_string(port).c_str(), &hints, &found);
  MT_USER_CHECK(error == 0, ErrorClass::config, cat("the address '", host ? host : "", "' is not known: ", ::gai_strerror(error)),
                "set MASTER_ADDR to the name or address of the first rank's machine");
  return {found, &::freeaddrinfo};
}

/// On all of this machine's addresses. Port 0: any that is free.
Socket listen_on(int port) {
  std::string why;
  for (int family : {AF_INET6, AF_INET}) {
    Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int on = 1, off = 0;
    if (socket.get() < 0) continue;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_storage where{};
    if (family == AF_INET6) {
      ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      auto& v6 = reinterpret_cast<sockaddr_in6&>(where);
      v6.sin6_family = AF_INET6, v6.sin6_addr = in6addr_any, v6.sin6_port = htons(static_cast<uint16_t>(port));
    } else {
      auto& v4 = reinterpret_cast<sockaddr_in&>(where);
      v4.sin_family = AF_INET, v4.sin_addr.s_addr = INADDR_ANY, v4.sin_port = htons(static_cast<uint16_t>(port));
    }
    socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&where), size) == 0 && ::listen(socket.get(), 1024) == 0)
      return socket;
    why = last_error();
  }
  throw Error(ErrorClass::config, cat("the first rank cannot listen on port ", port, ": ", why),
              "set MASTER_PORT to one that is free on its machine");
}

int port_of(const Socket& socket) {
  sockaddr_storage where{};
  socklen_t size = sizeof where;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&where), &size);
  return ntohs(where.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(where).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(where).sin_port);
}

/// Of one end of a connection: ::getpeername or ::getsockname.
std::string address_of(const Socket& socket, decltype(&::getpeername) which) {
  sockaddr_storage where{};
  socklen_t size = sizeof where;
  char text[NI_MAXHOST] = "";
  which(socket.get(), reinterpret_cast<sockaddr*>(&where), &size);
  ::getnameinfo(reinterpret_cast<sockaddr*>(&where), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

bool loopback(std::string_view address) {
  return address == "::1" || address.starts_with("127.") || address.starts_with("::ffff:127.");
}

[[noreturn]] void nobody(const std::string& who) {
  throw Error(ErrorClass::peer, cat("waited in vain for ", who, " to come"),
              "see that every rank was started, with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE");
}

void await(int fd, short what, Clock::time_point end, const std::string& who) {
  pollfd wait{fd, what, 0};
  for (;;) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) nobody(who);
    int ready = ::poll(&wait, 1, static_cast<int>(left));
    if (ready > 0) return;
  }
}

template <class T>
void put(const Socket& socket, const T* data, size_t count, const std::string& who) {
  auto* at = reinterpret_cast<const char*>(data);
  for (size_t left = count * sizeof(T); left > 0;) {
    ssize_t sent = ::send(socket.get(), at, left, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    MT_USER_CHECK(sent > 0, ErrorClass::peer, cat("the connection to ", who, " broke: ", last_error()), "");
    at += sent, left -= static_cast<size_t>(sent);
  }
}

/// False when the other end has gone.
template <class T>
bool get(const Socket& socket, T* data, size_t count, Clock::time_point end, const std::string& who) {
  auto* at = reinterpret_cast<char*>(data);
  for (size_t left = count * sizeof(T); left > 0;) {
    await(socket.get(), POLLIN, end, who);
    ssize_t got = ::recv(socket.get(), at, left, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got, left -= static_cast<size_t>(got);
  }
  return true;
}

Socket accept_one(const Socket& listener, Clock::time_point end, const std::string& who) {
  for (;;) {
    await(listener.get(), POLLIN, end, who);
    Socket socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.get() >= 0) return socket;
  }
}

/// Again until somebody listens there.
Socket connect_to(const std::string& address, int port, Clock::time_point end, const std::string& who) {
  for (auto pause = std::chrono::milliseconds(5);; pause = std::min(pause * 2, std::chrono::milliseconds(500))) {
    Addresses all = resolve(address.c_str(), port, 0);
    for (const addrinfo* a = all.get(); a; a = a->ai_next) {
      Socket socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (socket.get() >= 0 && ::connect(socket.get(), a->ai_addr, a->ai_addrlen) == 0) return socket;
    }
    if (Clock::now() > end) nobody(cat(who, " (", address, " port ", port, ": ", last_error(), ")"));
    std::this_thread::sleep_for(pause);
  }
}

Hello hello_of(const Place& place, int port) {
  Hello hello{.rank = place.rank, .size = place.size, .port = port};
  std::memcpy(hello.job, place.job.data(), std::min(place.job.size(), sizeof hello.job - 1));
  return hello;
}

std::string missing(const std::vector<Socket>& peers, int me) {
  std::vector<std::string> names;
  for (size_t r = 0; r < peers.size(); ++r)
    if (static_cast<int>(r) != me && peers[r].get() < 0) names.push_back(std::to_string(r));
  return cat(names.size() == 1 ? "rank " : "ranks ", join(names, ", "));
}

/// Who came over this machine's loopback is reached by others where they reach this process.
void name_for_others(const std::vector<Socket>& peers, std::vector<Door>& doors) {
  std::string here;
  for (const Socket& peer : peers)
    if (peer.get() >= 0 && !loopback(address_of(peer, ::getpeername))) here = address_of(peer, ::getsockname);
  for (Door& door : doors)
    if (!here.empty() && loopback(door.address)) {
      std::memset(door.address, 0, sizeof door.address);
      std::memcpy(door.address, here.data(), std::min(here.size(), sizeof door.address - 1));
    }
}

/// Ranks first .. size-1 come; who is no member is sent away. Where they listen.
std::vector<Door> receive_ranks(const Place& place, const Socket& listener, int first, Clock::time_point end,
                                std::vector<Socket>& peers) {
  std::vector<Door> doors(static_cast<size_t>(place.size));
  Hello mine = hello_of(place, 0);
  for (int come = first; come < place.size;) {
    Socket socket = accept_one(listener, end, missing(peers, place.rank));
    Hello theirs;
    auto soon = std::min(end, Clock::now() + std::chrono::seconds(10));
    try {
      if (!get(socket, &theirs, 1, soon, "a greeting") || theirs.magic != kMagic) continue;
    } catch (const Error&) {
      continue;  // who connects and says nothing is none of ours
    }
    bool alike = theirs.size == mine.size && std::memcmp(theirs.job, mine.job, sizeof mine.job) == 0;
    MT_USER_CHECK(alike && theirs.rank >= first && theirs.rank < place.size, ErrorClass::config,
                  cat("rank ", theirs.rank, " of ", theirs.size, " of another job came to port ", place.port),
                  "give each job a MASTER_PORT of its own");
    Socket& seat = peers[static_cast<size_t>(theirs.rank)];
    MT_USER_CHECK(seat.get() < 0, ErrorClass::config, cat("two processes say that they are rank ", theirs.rank),
                  "see how RANK is set");
    Door& door = doors[static_cast<size_t>(theirs.rank)];
    std::string address = address_of(socket, ::getpeername);
    std::memcpy(door.address, address.data(), std::min(address.size(), sizeof door.address - 1));
    door.port = theirs.port;
    seat = std::move(socket);
    ++come;
  }
  name_for_others(peers, doors);
  return doors;
}

}  // namespace

Place place_from_environment() {
  Place place{.rank = number_of({"RANK", "SLURM_PROCID"}, 0),
              .size = number_of({"WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1),
              .port = number_of({"MASTER_PORT"}, kDefaultPort)};
  MT_USER_CHECK(place.size >= 1 && place.rank < place.size, ErrorClass::config,
                cat("rank ", place.rank, " of a job of ", place.size), "see how RANK and WORLD_SIZE are set");
  if (place.size == 1) return place;
  const char* address = std::getenv("MASTER_ADDR");
  MT_USER_CHECK(address && *address, ErrorClass::config, cat("rank ", place.rank, " of ", place.size, " is not told where to meet"),
                "set MASTER_ADDR to the name or address of the first rank's machine, as torchrun does");
  place.address = address;
  // torchrun listens on MASTER_PORT itself.
  if (const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE"); agent && std::string_view(agent) == "True") ++place.port;
  for (const char* name : {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"})
    if (const char* word = std::getenv(name); word && place.job.empty()) place.job = word;
  return place;
}

std::vector<int> meet(const Place& place, std::chrono::seconds limit) {
  auto end = Clock::now() + limit;
  std::vector<Socket> peers(static_cast<size_t>(place.size));
  if (place.size > 1 && place.rank == 0) {
    Socket listener = listen_on(place.port);
    std::vector<Door> doors = receive_ranks(place, listener, 1, end, peers);
    for (int r = 1; r < place.size; ++r) put(peers[static_cast<size_t>(r)], doors.data(), doors.size(), cat("rank ", r));
  } else if (place.size > 1) {
    Socket listener = listen_on(0);
    Hello mine = hello_of(place, port_of(listener));
    Socket first = connect_to(place.address, place.port, end, "rank 0");
    put(first, &mine, 1, "rank 0");
    std::vector<Door> doors(static_cast<size_t>(place.size));
    MT_USER_CHECK(get(first, doors.data(), doors.size(), end, "rank 0 and the others"), ErrorClass::peer,
                  "rank 0 went away before all had come", "see what it said");
    peers[0] = std::move(first);
    for (int r = 1; r < place.rank; ++r) {
      const Door& door = doors[static_cast<size_t>(r)];
      peers[static_cast<size_t>(r)] = connect_to(door.address, door.port, end, cat("rank ", r));
      put(peers[static_cast<size_t>(r)], &mine, 1, cat("rank ", r));
    }
    receive_ranks(place, listener, place.rank + 1, end, peers);
  }
  std::vector<int> out;
  for (Socket& peer : peers) {
    int on = 1;
    if (peer.get() >= 0) ::setsockopt(peer.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    out.push_back(peer.release());
  }
  return out;
}

}  // namespace mtrain::mpi
