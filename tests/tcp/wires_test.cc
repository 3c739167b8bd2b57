// Messages between ranks whose other end does not keep to what was agreed.
#include "plugins/comm/tcp/wires.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <numeric>

#include "fixture.h"

namespace mtrain::tcp {
namespace {

enum Kind : uint32_t { kMessage = 0x4D545752, kOffer, kTake, kGive, kEnd };
struct Head {  // as wires.h has it
  uint64_t channel = 0, bytes = 0, offer = 0;
  uint32_t tag = 0, kind = 0;
};

/// Rank 0 of two, whose other rank is this test.
struct Pair {
  Pair() {
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    wires.emplace(0, std::vector<int>{-1, ends[0]});
  }
  ~Pair() { ::close(ends[1]); }
  void write(const Head& head, const std::string& content = "") const {
    std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
    bytes += content;
    REQUIRE(::send(ends[1], bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }
  Head read() const {
    Head head;
    CHECK(::recv(ends[1], &head, sizeof head, 0) == sizeof head);
    return head;
  }
  /// What comes is refused, once; what was asked for stays as it was.
  void refused(const std::string& part) {
    std::string message = message_of(ErrorClass::peer, [this] { wires->pump(); });
    CHECK_MESSAGE(has(message, part), message);
    CHECK(has(message, "rank 1 sends "));
    CHECK(wires->gone(1));
    wires->pump();
    CHECK_FALSE(wires->ended());
  }
  int ends[2] = {-1, -1};
  std::optional<Wires> wires;
};

struct Memory {  // with what follows it
  explicit Memory(size_t size) : bytes(size + kBehind, std::byte{0x5A}), wanted(size) {}
  std::shared_ptr<Request> request(uint32_t tag) {
    return std::make_shared<Request>(Request{.channel = 7,
                                             .peer = 1,
                                             .tag = tag,
                                             .data = bytes.data(),
                                             .bytes = wanted,
                                             .receives = true});
  }
  bool untouched_behind() const {
    return std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(wanted), bytes.end(),
                       [](std::byte b) { return b == std::byte{0x5A}; });
  }
  static constexpr size_t kBehind = 1 << 20;
  std::vector<std::byte> bytes;
  size_t wanted;
};

constexpr size_t kLong = 100000;

TEST_CASE("tcp wires: a long message comes in the bytes that were offered, and in no others") {
  for (size_t given : {kLong, kLong - 1, kLong + 1, size_t{0}, kLong + 500000, size_t{1} << 62}) {
    INFO(given, " bytes");
    Pair pair;
    Memory memory(kLong + 10);
    auto request = memory.request(3);
    pair.wires->receive(request);
    pair.write({.channel = 7, .bytes = kLong, .offer = 9, .tag = 3, .kind = kOffer});
    pair.wires->pump();
    CHECK(pair.read().kind == kTake);
    pair.write({.channel = 7, .bytes = given, .offer = 9, .tag = 3, .kind = kGive},
               std::string(kLong, 'x'));
    if (given == kLong) {
      pair.wires->pump();
      CHECK(request->done);
      CHECK(request->moved == kLong);
    } else {
      pair.refused("bytes after an offer of 100000");
      CHECK_FALSE(request->done);
    }
    CHECK(memory.untouched_behind());
  }
}

TEST_CASE("tcp wires: lengths that nobody agreed on are refused before there is memory for them") {
  struct Case {
    Head head;
    const char* part;
  };
  for (const Case& one :
       {Case{{.channel = 7, .bytes = 65537, .tag = 3, .kind = kMessage},
             "65537 bytes without an offer"},
        Case{{.channel = 7, .bytes = ~uint64_t{0}, .tag = 3, .kind = kMessage}, "without an offer"},
        Case{{.channel = 1, .bytes = (uint64_t{1} << 30) + 1, .tag = 1, .kind = kOffer},
             "an offer of 1073741825 bytes"},
        Case{{.channel = 7, .bytes = 101, .tag = 3, .kind = kMessage},
             "101 bytes where 100 are expected"},
        Case{{.channel = 7, .bytes = 100000, .tag = 3, .kind = kOffer},
             "100000 bytes where 100 are expected"},
        Case{{.channel = 7, .bytes = 1, .tag = 3, .kind = kGive}, "a message without a receiver"},
        Case{{.channel = 7, .offer = 1, .tag = 3, .kind = kTake},
             "for a message that was not offered to it"},
        Case{{.channel = 7, .tag = 3, .kind = kEnd + 1}, "invalid message data"},
        Case{{.channel = 7, .tag = 3, .kind = 0}, "invalid message data"}}) {
    INFO(one.part);
    Pair pair;
    Memory memory(100);
    auto request = memory.request(3);
    pair.wires->receive(request);
    pair.write(one.head, std::string(40, 'x'));
    pair.refused(one.part);
    CHECK_FALSE(request->done);
    CHECK(memory.untouched_behind());
  }
}

TEST_CASE("tcp wires: what came before it was asked for is held to what is wanted then") {
  for (uint32_t kind : {kMessage, kOffer}) {
    Pair pair;
    Memory memory(100);
    pair.write({.channel = 7, .bytes = 101, .offer = 4, .tag = 3, .kind = kind},
               kind == kMessage ? std::string(101, 'x') : "");
    pair.wires->pump();
    CHECK(has(message_of(ErrorClass::peer, [&] { pair.wires->receive(memory.request(3)); }),
              "101 bytes where 100 are expected"));
    CHECK(memory.untouched_behind());
  }
  Pair pair;  // one number for two offers
  Memory first(kLong), second(kLong);
  for (int i = 0; i < 2; ++i)
    pair.write({.channel = 7, .bytes = kLong, .offer = 4, .tag = 3, .kind = kOffer});
  pair.wires->receive(first.request(3));
  pair.wires->receive(second.request(3));
  pair.refused("a repeated offer");
}

TEST_CASE("tcp wires: no status with which a rank ends the others is success") {
  for (auto [said, taken] :
       {std::pair{15u, 15}, std::pair{255u, 255}, std::pair{1u, 1}, std::pair{0u, 15},
        std::pair{256u, 15}, std::pair{512u, 15}, std::pair{~0u, 15}}) {
    Pair pair;
    CHECK_FALSE(pair.wires->ended());
    pair.write({.tag = said, .kind = kEnd});
    pair.wires->pump();
    CHECK(pair.wires->ended() == taken);
  }
}

TEST_CASE("tcp wires: a rank whose connection ends is gone, once what it sent has been read") {
  Pair pair;
  Memory memory(4);
  auto request = memory.request(3);
  pair.wires->receive(request);
  pair.write({.channel = 7, .bytes = 4, .tag = 3, .kind = kMessage}, "word");
  ::shutdown(pair.ends[1], SHUT_RDWR);
  CHECK_FALSE(pair.wires->gone(1));
  CHECK_FALSE(pair.wires->gone(0));
  pair.wires->pump();
  CHECK(request->done);
  CHECK(pair.wires->gone(1));
  CHECK_FALSE(pair.wires->gone(0));
}

}  // namespace
}  // namespace mtrain::tcp
