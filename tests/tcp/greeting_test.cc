// What two ends of a connection believe of each other, without any sockets.
#include "plugins/comm/tcp/greeting.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "fixture.h"

namespace mtrain::tcp {
namespace {

using State = Greeting::State;
using Verdict = Greeting::Verdict;

std::string take_out(Greeting& from) {
  std::string bytes(from.unsent());
  from.sent(bytes.size());
  return bytes;
}

/// Hands the messages to and fro, each through `change` with its number; who proves itself is
/// welcome.
void talk(
    Greeting& caller, Greeting& called,
    const std::function<void(int, std::string&)>& change = [](int, std::string&) {}) {
  int number = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (auto [from, to] : {std::pair{&called, &caller}, std::pair{&caller, &called}}) {
      std::string bytes = take_out(*from);
      if (bytes.empty()) continue;
      moved = true;
      change(number++, bytes);
      while (!bytes.empty() && to->wanted() > 0) {  // in pieces
        size_t size = std::min<size_t>({bytes.size(), to->wanted(), 7});
        to->take(std::string_view(bytes).substr(0, size));
        bytes.erase(0, size);
      }
      if (to == &called && called.state() == State::proven && number == 2)
        called.answer(Verdict::welcome);
    }
  }
}

TEST_CASE("tcp greeting: two ends that know one secret believe each other") {
  Greeting called = Greeting::called(environment_of(0, 4)),
           caller = Greeting::calls(environment_of(3, 4), 0, 1234);
  talk(caller, called);
  CHECK(caller.state() == State::proven);
  CHECK(called.state() == State::proven);
  CHECK(called.hello().rank == 3);
  CHECK(called.hello().size == 4);
  CHECK(called.hello().port == 1234);
  CHECK(std::string(called.hello().job) == "job");
}

TEST_CASE("tcp greeting: with another secret neither believes the other, and both say why") {
  Greeting called = Greeting::called(environment_of(0, 2)),
           caller = Greeting::calls(environment_of(1, 2, "a secret of somebody else"), 0, 0);
  talk(caller, called);
  CHECK(called.state() == State::stranger);
  CHECK(has(called.reason(), "does not know the secret that this rank has from the test"));
  CHECK(caller.state() == State::refused);
  CHECK(caller.verdict() == Verdict::unproven);
  CHECK(has(caller.reason(), "a different secret"));
}

TEST_CASE("tcp greeting: a refusal says its reason") {
  for (auto [verdict, reason] : {std::pair{Verdict::other_job, "another job"},
                                 std::pair{Verdict::misfit, "a job of another size"}}) {
    Greeting called = Greeting::called(environment_of(0, 2)),
             caller = Greeting::calls(environment_of(1, 2), 0, 0);
    caller.take(take_out(called));
    called.take(take_out(caller));
    REQUIRE(called.state() == State::proven);
    called.answer(verdict);
    caller.take(take_out(called));
    CHECK(caller.state() == State::refused);
    CHECK(has(caller.reason(), reason));
  }
}

TEST_CASE("tcp greeting: no flipped bit of any message is believed") {
  for (int message = 0; message < 3; ++message)
    for (size_t bit = 0;; ++bit) {
      Greeting called = Greeting::called(environment_of(0, 2)),
               caller = Greeting::calls(environment_of(1, 2), 0, 0);
      bool in_range = false;
      talk(caller, called, [&](int number, std::string& bytes) {
        if (number != message || bit / 8 >= bytes.size()) return;
        in_range = true;
        bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      });
      if (!in_range) break;
      INFO("bit ", bit, " of message ", message);
      CHECK(caller.state() != State::proven);
      if (message < 2) CHECK(called.state() != State::proven);
    }
}

TEST_CASE(
    "tcp greeting: what was overheard is of no use in another connection, nor to who called "
    "himself") {
  std::vector<std::string> heard;
  Greeting called = Greeting::called(environment_of(0, 2)),
           caller = Greeting::calls(environment_of(1, 2), 0, 0);
  talk(caller, called, [&](int, std::string& bytes) { heard.push_back(bytes); });
  REQUIRE(heard.size() == 3);
  Greeting again = Greeting::called(environment_of(0, 2));
  again.take(heard[1]);
  CHECK(again.state() == State::stranger);
  Greeting calls_again = Greeting::calls(environment_of(1, 2), 0, 0);
  calls_again.take(heard[0]);
  take_out(calls_again);
  calls_again.take(heard[2]);
  CHECK(calls_again.state() == State::stranger);
  // Another rank's endpoint: the rank that answers is not the expected one.
  Greeting elsewhere = Greeting::calls(environment_of(2, 3), 1, 0),
           first = Greeting::called(environment_of(0, 3));
  elsewhere.take(take_out(first));
  CHECK(elsewhere.state() == State::stranger);
  CHECK(has(elsewhere.reason(), "rank 0 listens there"));
}

TEST_CASE("tcp greeting: what is no message is found, and no more is wanted than a message has") {
  for (char byte : {'\0', '\xFF', 'G'}) {
    Greeting called = Greeting::called(environment_of(0, 2)),
             caller = Greeting::calls(environment_of(1, 2), 0, 0);
    for (Greeting* end : {&called, &caller}) {
      while (end->wanted() > 0) {
        CHECK(end->wanted() <= sizeof(Greeting::Hello));
        end->take(std::string_view(&byte, 1));
      }
      CHECK(end->state() == State::stranger);
      CHECK_THROWS_AS(end->take("x"), Error);
    }
  }
}

}  // namespace
}  // namespace mtrain::tcp
