#include "deadline_io.h"

#include <sys/socket.h>

#include <system_error>

#include "mtrain/base/error.h"

namespace mtrain::tcp {

std::string reason_of(int error) {
  return std::error_code(error, std::generic_category()).message();
}

void throw_not_connected(const std::string& who) {
  throw Error(
      ErrorClass::peer, cat("timed out while waiting for ", who, " to connect"),
      "check that every rank was started, with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE");
}

int poll_all(std::vector<pollfd>& all, std::chrono::milliseconds patience) {
  int ready = ::poll(all.data(), all.size(), static_cast<int>(patience.count()));
  MT_USER_CHECK(ready >= 0 || errno == EINTR, ErrorClass::io,
                cat("cannot wait for ", all.size(), " connections: ", reason_of(errno)),
                "raise the number of files that a process may open (ulimit -n)");
  return ready;
}

namespace {

void await(const Socket& socket, short what, Clock::time_point end, const std::string& who) {
  std::vector<pollfd> wait{{socket.get(), what, 0}};
  for (;;) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) throw_not_connected(who);
    if (poll_all(wait, left) > 0) return;
  }
}

}  // namespace

void put(const Socket& socket, std::string_view bytes, Clock::time_point end,
         const std::string& who) {
  while (!bytes.empty()) {
    ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && not_now()) {
      await(socket, POLLOUT, end, who);
      continue;
    }
    MT_USER_CHECK(sent > 0, ErrorClass::peer,
                  cat("the connection to ", who, " broke: ", reason_of(errno)),
                  "see what that rank reported");
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

bool get(const Socket& socket, char* at, size_t left, Clock::time_point end,
         const std::string& who) {
  while (left > 0) {
    ssize_t got = ::recv(socket.get(), at, left, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && not_now()) {
      await(socket, POLLIN, end, who);
      continue;
    }
    if (got <= 0) return false;
    at += got, left -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace mtrain::tcp
