// Ranks that find each other while strangers come to the same port. Nothing here waits for a time
// to pass: limits are hours where a stranger must not delay anybody.
#include "plugins/comm/tcp/rendezvous.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <future>

#include "fixture.h"
#include "plugins/comm/tcp/greeting.h"
#include "plugins/comm/tcp/socket.h"

namespace {
// A name that is not known at first; then it is the address of this process's ranks.
constexpr const char* kLate = "late.invalid";
std::atomic<int> lookups_that_fail{0};
}  // namespace

extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  static auto system =
      reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (std::string_view(node) != kLate) return system(node, service, hints, found);
  if (--lookups_that_fail >= 0) return EAI_AGAIN;
  return system(mtrain::tcp::environment_of(0, 2).address.c_str(), service, hints, found);
}

namespace mtrain::tcp {
namespace {

using namespace std::chrono_literals;
constexpr RendezvousLimits kForever{.whole = 10h, .greeting = 10h};

/// A connection to where the first rank listens, or will: again until it does.
Socket visit(const RankEnvironment& environment) {
  Address where = resolve(environment.address, environment.port)[0];
  for (;;) {
    Socket socket(::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&where.where), where.size) == 0)
      return socket;
    std::this_thread::yield();
  }
}
void say(const Socket& socket, const std::string& words) {
  [[maybe_unused]] ssize_t sent = ::send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL);
}
std::string hear(const Socket& socket, size_t bytes) {
  std::string text(bytes, '\0');
  ssize_t got = ::recv(socket.get(), text.data(), bytes, MSG_WAITALL);
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return text;
}

struct Ranks {
  explicit Ranks(int size_in, const RendezvousLimits& limits_in = kForever)
      : size(size_in), limits(limits_in) {}
  void start(int rank) { start(environment_of(rank, size)); }
  void start(const RankEnvironment& environment) {
    connected.push_back(std::async(
        std::launch::async, [this, environment] { return connect_ranks(environment, limits); }));
  }
  /// All ranks are connected: one connection per pair.
  void check_all() {
    std::vector<std::vector<int>> all;
    for (auto& one : connected) all.push_back(one.get());
    for (size_t a = 0; a < all.size(); ++a)
      for (size_t b = 0; b < all.size(); ++b) {
        if (a == b) {
          CHECK(all[a][b] == -1);
          continue;
        }
        char sent = static_cast<char>(a * 10 + b), got = 0;
        CHECK(::send(all[a][b], &sent, 1, MSG_NOSIGNAL) == 1);
        ::fcntl(all[b][a], F_SETFL, 0);  // waits
        CHECK(::recv(all[b][a], &got, 1, 0) == 1);
        CHECK(got == sent);
      }
    for (auto& fds : all)
      for (int fd : fds)
        if (fd >= 0) ::close(fd);
  }
  int size;
  RendezvousLimits limits;
  std::vector<std::future<std::vector<int>>> connected;  // in the order of their start
};

TEST_CASE("tcp: ranks meet in any order") {
  for (int size : {2, 3, 5}) {
    Ranks ranks(size);
    for (int r = 0; r < size; ++r) ranks.start(r);
    ranks.check_all();
  }
  Ranks late(3);
  for (int r : {0, 1}) late.start(r);
  visit(environment_of(0, 3));
  late.start(2);
  late.check_all();
}

TEST_CASE("tcp: strangers neither delay nor end a job, nor take a seat") {
  Ranks ranks(3);
  ranks.start(0);
  const RankEnvironment first = environment_of(0, 3);
  std::vector<Socket> silent, odd;
  for (int i = 0; i < 40; ++i) silent.push_back(visit(first));
  Greeting forger = Greeting::calls(environment_of(1, 3, "a secret of somebody else"), 0, 1);
  std::string forged(144, '\0'), unproven;
  {
    Greeting called = Greeting::called(environment_of(0, 3, "a secret of somebody else"));
    forger.take(called.unsent());
    forged = std::string(forger.unsent());  // proven to somebody else, as rank 1
  }
  for (const std::string& words : {std::string("GET / HTTP/1.0\r\n\r\n"),
                                   std::string(100000, '\xFF'), std::string(144, '\0'), forged}) {
    odd.push_back(visit(first));
    say(odd.back(), words);
  }
  CHECK(hear(odd.back(), 40 + 40).size() == 80);  // the challenge, and an answer that says no
  CHECK(hear(odd.back(), 1).empty());             // closed
  odd.push_back(visit(first));
  say(odd.back(), forged.substr(0, 100));  // half of one
  visit(first);                            // and one that goes at once
  for (int r : {1, 2}) ranks.start(r);
  ranks.check_all();
  CHECK(hear(silent[0], 40).size() == 40);
  CHECK(hear(silent[0], 1).empty());  // nobody listens any more
}

TEST_CASE("tcp: of very many strangers the oldest go, and a rank gets in") {
  Ranks ranks(2);
  ranks.start(0);
  std::vector<Socket> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(visit(environment_of(0, 2)));
  CHECK(hear(silent[0], 41).size() ==
        40);  // a challenge, and then the end, while nobody has come yet
  ranks.start(1);
  ranks.check_all();
}

TEST_CASE("tcp: who says nothing is dropped while ranks are waited for") {
  Ranks ranks(2, {.whole = 10h, .greeting = 20ms});
  ranks.start(0);
  Socket silent = visit(environment_of(0, 2));
  CHECK(hear(silent, 41).size() == 40);
  ranks.limits.greeting = 10h;
  ranks.start(1);
  ranks.check_all();
}

TEST_CASE(
    "tcp: a rank of another secret or another job is refused with a reason, and the job goes on") {
  Ranks ranks(2);
  ranks.start(0);
  auto refused = [](const RankEnvironment& environment, const std::string& part) {
    std::string message =
        message_of(ErrorClass::config, [&] { connect_ranks(environment, kForever); });
    CHECK_MESSAGE(has(message, part), message);
  };
  refused(environment_of(1, 2, "a secret of somebody else"), "rank 1 is refused by rank 0 at 127.");
  refused(environment_of(1, 2, "a secret of somebody else"),
          "it has a different secret\nuse the same MTRAIN_JOB_SECRET");
  RankEnvironment other = environment_of(1, 2);
  other.job = "another";
  refused(other, "it belongs to another job\nuse a different MASTER_PORT for each job");
  ranks.start(1);
  ranks.check_all();
}

TEST_CASE("tcp: ranks of one job that do not fit together end it, and both sides say why") {
  struct Case {
    RankEnvironment environment;
    const char* part;
  };
  for (const Case& one : {Case{environment_of(1, 4), "rank 1 of 4 connected to rank 0 of 3"},
                          Case{environment_of(1, 3), "two processes claim to be rank 1"}}) {
    Ranks ranks(3);
    ranks.start(0);
    std::vector<Socket> held;
    if (one.environment.size == 3) {
      held.push_back(visit(environment_of(0, 3)));
      Greeting greeting = Greeting::calls(environment_of(1, 3), 0, 1);
      greeting.take(hear(held[0], 40));
      say(held[0], std::string(greeting.unsent()));
      greeting.take(hear(held[0], 40));
      REQUIRE(greeting.state() == Greeting::State::proven);
    }
    CHECK(has(message_of(ErrorClass::config, [&] { connect_ranks(one.environment, kForever); }),
              "it belongs to a job of another size, or already has a process of this rank"));
    CHECK(has(message_of(ErrorClass::config, [&] { ranks.connected[0].get(); }), one.part));
  }
}

TEST_CASE("tcp: a rank that goes away after its greeting is missed at once") {
  Ranks ranks(3);
  ranks.start(0);
  {
    Socket socket = visit(environment_of(0, 3));
    Greeting greeting = Greeting::calls(environment_of(2, 3), 0, 1);
    greeting.take(hear(socket, 40));
    say(socket, std::string(greeting.unsent()));
    hear(socket, 40);
  }
  CHECK(has(message_of(ErrorClass::peer, [&] { ranks.connected[0].get(); }),
            "rank 2 disconnected before all ranks had connected"));
  Ranks other(3);  // and so is the first one
  other.start(1);
  {
    Address where = resolve(environment_of(0, 3).address, 23456)[0];
    Socket listener = listen_at(where), socket;
    ::fcntl(listener.get(), F_SETFL, 0);
    socket = Socket(::accept(listener.get(), nullptr, nullptr));
    Greeting greeting = Greeting::called(environment_of(0, 3));
    say(socket, std::string(greeting.unsent()));
    greeting.sent(40);
    greeting.take(hear(socket, 144));
    REQUIRE(greeting.state() == Greeting::State::proven);
    greeting.answer(Greeting::Verdict::welcome);
    say(socket, std::string(greeting.unsent()));
  }
  CHECK(has(message_of(ErrorClass::peer, [&] { other.connected[0].get(); }),
            "rank 0 disconnected before all ranks had connected"));
}

TEST_CASE(
    "tcp: what listens at the port and is no rank of this job is named, and a rank that nobody "
    "answers says so") {
  Address where = resolve(environment_of(0, 2).address, 23456)[0];
  for (auto [words, part] :
       {std::pair{std::string("SSH-2.0-something that listens there"),
                  "the process that listens there is not a rank of this mtrain"},
        std::pair{std::string(), "it closes the connection"}}) {
    Socket listener = listen_at(where);
    REQUIRE(listener.open());
    ::fcntl(listener.get(), F_SETFL, 0);
    Ranks ranks(2, {.whole = words.empty() ? 50ms : 10h, .greeting = 10h});
    ranks.start(1);
    Socket socket(::accept(listener.get(), nullptr, nullptr));
    say(socket, words + std::string(words.empty() ? 0 : 40, ' '));
    socket.close();
    std::string message = message_of(words.empty() ? ErrorClass::peer : ErrorClass::config,
                                     [&] { ranks.connected[0].get(); });
    CHECK_MESSAGE(has(message, words.empty() ? "timed out while waiting for rank 0 (127." : part),
                  message);
  }
}

TEST_CASE(
    "tcp: a name that is not known yet is looked up again, and at the end the reason is named") {
  Ranks ranks(2, {.whole = 100ms, .greeting = 10h});
  RankEnvironment environment = environment_of(1, 2);
  environment.address = "no-such-rank.invalid";
  ranks.start(environment);
  std::string message = message_of(ErrorClass::peer, [&] { ranks.connected[0].get(); });
  CHECK_MESSAGE(has(message,
                    "timed out while waiting for rank 0 (no-such-rank.invalid port 23456: the "
                    "address 'no-such-rank.invalid' cannot be"),
                message);
  environment.rank = 0;
  CHECK(has(message_of(ErrorClass::config, [&] { connect_ranks(environment, ranks.limits); }),
            "set MASTER_ADDR to the name"));
}

TEST_CASE("tcp: ranks meet at a name that becomes known while they wait") {
  lookups_that_fail = 6;
  Ranks ranks(2);
  for (int r : {0, 1}) {
    RankEnvironment environment = environment_of(r, 2);
    environment.address = kLate;
    ranks.start(environment);
  }
  ranks.check_all();
  CHECK(lookups_that_fail < 0);
}

TEST_CASE("tcp: a job's own ranks are not too many that arrive at once") {
  Ranks ranks(400, kForever);
  ranks.start(0);
  std::vector<Socket> early;
  for (int i = 0; i < 350; ++i) early.push_back(visit(environment_of(0, 400)));
  CHECK(hear(early.back(), 40).size() == 40);  // so all have been let in
  CHECK(hear(early[0], 40).size() == 40);
  char byte = 0;
  CHECK(::recv(early[0].get(), &byte, 1, MSG_DONTWAIT) == -1);  // and it is still open
  CHECK(has(message_of(ErrorClass::config, [] { connect_ranks(environment_of(1, 4), kForever); }),
            "it belongs to a job of another size, or already has a process of this rank"));
  CHECK(has(message_of(ErrorClass::config, [&] { ranks.connected[0].get(); }),
            "rank 1 of 4 connected to rank 0 of 400"));
}

TEST_CASE("tcp: who hangs up before the answer and calls again keeps its place") {
  Ranks ranks(2);
  ranks.start(0);
  Socket socket = visit(environment_of(0, 2));
  Greeting greeting = Greeting::calls(environment_of(1, 2), 0, 1);
  greeting.take(hear(socket, 40));
  std::string words(greeting.unsent());
  // The last byte and the end of the connection come as one packet.
  say(socket, words.substr(0, words.size() - 1));
  CHECK(::send(socket.get(), &words.back(), 1, MSG_NOSIGNAL | MSG_MORE) == 1);
  ::shutdown(socket.get(), SHUT_WR);
  CHECK(hear(socket, 1).empty());
  ranks.start(1);
  ranks.check_all();
}

TEST_CASE("tcp: a rank that has proven itself waits for the answer longer than for a greeting") {
  Ranks ranks(3, {.whole = 10h, .greeting = 200ms});
  Socket listener = listen_at(resolve(environment_of(0, 3).address, 23456)[0]), socket;
  REQUIRE(listener.open());
  ::fcntl(listener.get(), F_SETFL, 0);
  ranks.start(1);
  Greeting greeting = Greeting::called(environment_of(0, 3));
  while (greeting.state() != Greeting::State::proven) {  // on a busy machine the limit may be over
                                                         // before the proof is sent
    socket = Socket(::accept(listener.get(), nullptr, nullptr));
    greeting = Greeting::called(environment_of(0, 3));
    say(socket, std::string(greeting.unsent()));
    greeting.sent(40);
    greeting.take(hear(socket, 144));
  }
  // A silent connection to the rank's own port is dropped after the same limit, which began later.
  RankEnvironment endpoint = environment_of(0, 3);
  endpoint.address = address_of(socket, ::getpeername).text();
  endpoint.port = greeting.hello().port;
  Socket silent = visit(endpoint);
  CHECK(hear(silent, 41).size() == 40);
  char byte = 0;
  CHECK(::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == -1);  // still open
  CHECK(errno == EAGAIN);
  greeting.answer(Greeting::Verdict::welcome);
  say(socket, std::string(greeting.unsent()));
  socket.close();
  CHECK(has(message_of(ErrorClass::peer, [&] { ranks.connected[0].get(); }),
            "rank 0 disconnected before all ranks had connected"));
}

TEST_CASE("tcp: connections are served where a process may open fewer files than there are ranks") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit few = before;
  few.rlim_cur = 64;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  Ranks ranks(100);
  ranks.start(0);
  std::vector<Socket> held;
  for (int i = 0; i < 2; ++i) {
    held.push_back(visit(environment_of(0, 100)));
    CHECK(hear(held.back(), 40).size() == 40);
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(has(message_of(ErrorClass::config, [] { connect_ranks(environment_of(1, 4), kForever); }),
            "it belongs to a job of another size, or already has a process of this rank"));
  CHECK(has(message_of(ErrorClass::config, [&] { ranks.connected[0].get(); }),
            "rank 1 of 4 connected to rank 0 of 100"));
}

TEST_CASE("tcp: of very many ranks that are missing some are named") {
  std::string message = message_of(ErrorClass::peer, [] {
    connect_ranks(environment_of(0, 400), {.whole = 20ms, .greeting = 10h});
  });
  CHECK_MESSAGE(has(message, "timed out while waiting for ranks 1, 2, 3"), message);
  CHECK_MESSAGE(has(message, " 16 and 383 more to connect"), message);
}

TEST_CASE("tcp: a job of one machine is reached over its address alone") {
  Ranks ranks(2);
  ranks.start(0);
  Socket found = visit(environment_of(0, 2));
  Address other = resolve("127.0.0.1", 23456)[0];
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK(::connect(socket.get(), reinterpret_cast<sockaddr*>(&other.where), other.size) != 0);
  // Nobody listens at a port that others have.
  std::string taken =
      message_of(ErrorClass::config, [] { connect_ranks(environment_of(0, 2), kForever); });
  CHECK_MESSAGE(has(taken, "the first rank cannot listen on port 23456 of 127."), taken);
  ranks.start(1);
  ranks.check_all();
}

}  // namespace
}  // namespace mtrain::tcp
