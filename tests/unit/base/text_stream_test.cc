#include "mtrain/base/text_stream.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

using namespace mtrain;

namespace {

struct Ends {
  std::array<int, 2> ends{-1, -1};  // read, write
  ~Ends() {
    for (int end : ends)
      if (end >= 0) ::close(end);
  }
  /// All that can be read now.
  std::string text() const {
    ::fcntl(ends[0], F_SETFL, ::fcntl(ends[0], F_GETFL) | O_NONBLOCK);
    std::string out;
    std::array<char, 4096> buffer;
    for (ssize_t got; (got = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
      out.append(buffer.data(), static_cast<size_t>(got));
    return out;
  }
};

struct Pipe : Ends {
  Pipe() { REQUIRE(::pipe(ends.data()) == 0); }
};
struct Socket : Ends {
  Socket() { REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0); }
};
struct Terminal : Ends {
  /// A system without /dev/pts has no pseudo-terminals.
  static bool is_there() {
    const int end = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (end >= 0) ::close(end);
    return end >= 0;
  }
  Terminal() {
    ends[0] = ::posix_openpt(O_RDWR | O_NOCTTY);
    REQUIRE(ends[0] >= 0);
    REQUIRE(::grantpt(ends[0]) == 0);
    REQUIRE(::unlockpt(ends[0]) == 0);
    ends[1] = ::open(::ptsname(ends[0]), O_RDWR | O_NOCTTY);
    REQUIRE(ends[1] >= 0);
  }
};

/// Lines "0\n", "1\n", … each of `bytes` bytes with leading zeros.
std::string line(size_t number, size_t bytes) {
  std::string digits = std::to_string(number);
  return std::string(bytes - 1 - digits.size(), '0') + digits + "\n";
}

void check_reader_who_stands_still(const Ends& to) {
  constexpr size_t kBytes = 1000, kLines = 2000;
  TextStream stream(to.ends[1]);
  for (size_t i = 0; i < kLines; ++i) stream.write(line(i, kBytes));
  CHECK(stream.behind());
  CHECK(stream.error() == 0);
  size_t lost = stream.lost();
  CHECK(lost > kLines / 2);
  // He reads again: what was kept comes, in order, then what says how much is missing, then the
  // present.
  std::string all = to.text();
  while (stream.behind()) {
    stream.write("");
    all += to.text();
  }
  stream.write("now\n");
  while (all.find("now") == std::string::npos ||
         all.back() != '\n') {  // a terminal hands it on when it comes to it
    pollfd wait{.fd = to.ends[0], .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&wait, 1, -1) == 1);
    all += to.text();
  }
  std::erase(all, '\r');
  size_t at = 0;
  size_t whole = 0;
  for (; all.compare(at, kBytes, line(whole, kBytes)) == 0; at += kBytes) ++whole;
  CHECK(all.substr(at) == "(" + std::to_string(kLines - whole) +
                              " lines are missing here: the reader was too slow)\nnow\n");
  CHECK(stream.lost() == kLines - whole);
  CHECK(whole * kBytes >= TextStream::kMostKept - kBytes);
}

}  // namespace

TEST_CASE(
    "text for a reader who stands still is buffered, then dropped by lines with a notice; nobody "
    "waits") {
  check_reader_who_stands_still(Pipe());
  check_reader_who_stands_still(Socket());
  if (Terminal::is_there())
    check_reader_who_stands_still(Terminal());
  else
    MESSAGE("not tested with a terminal: there is no /dev/pts here");
}

TEST_CASE("a descriptor is left as it was for others who have it") {
  Pipe pipe;
  { TextStream(pipe.ends[1]).write("one\n"); }
  CHECK((::fcntl(pipe.ends[1], F_GETFL) & O_NONBLOCK) == 0);
  CHECK(pipe.text() == "one\n");
}

TEST_CASE("a reader who is gone is an error of the stream and no signal") {
  Pipe pipe;
  TextStream stream(pipe.ends[1]);
  ::close(pipe.ends[0]);
  pipe.ends[0] = -1;
  for (int i = 0; i < 3; ++i) stream.write("text\n");
  CHECK(stream.error() == EPIPE);
  CHECK(stream.lost() == 0);
  stream.flush();
  TextStream nowhere(987);
  nowhere.write("text\n");
  nowhere.flush();
}
