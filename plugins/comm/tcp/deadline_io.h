// Sends and receives on non-blocking sockets until a deadline. Stateless functions for any thread.
#pragma once

#include <poll.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "socket.h"

namespace mtrain::tcp {

using Clock = std::chrono::steady_clock;

/// The text of an errno value.
std::string reason_of(int error);

/// The last call failed because it would have blocked.
inline bool not_now() { return errno == EAGAIN || errno == EWOULDBLOCK; }

/// Throws the error that `who` did not connect before the deadline.
[[noreturn]] void throw_not_connected(const std::string& who);

/// Like ::poll(), for open descriptors. Returns -1 if a signal interrupts it, throws ErrorClass::io
/// for other failures.
int poll_all(std::vector<pollfd>& all, std::chrono::milliseconds patience);

/// Sends all bytes. Throws ErrorClass::peer if the connection breaks or the deadline passes.
void put(const Socket& socket, std::string_view bytes, Clock::time_point end,
         const std::string& who);

/// Receives `left` bytes. False if the other end closed the connection. Throws ErrorClass::peer if
/// the deadline passes.
bool get(const Socket& socket, char* at, size_t left, Clock::time_point end,
         const std::string& who);

}  // namespace mtrain::tcp
