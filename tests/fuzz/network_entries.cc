// What comes over a network: greetings of the tcp communicator, messages between its ranks, and
// those of processes that watch each other. Each ends with what was sent or with one error of a
// peer; no byte is written that nobody asked for.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/comm/job_judge.h"
#include "mtrain/comm/watch_message.h"
#include "mtrain/comm/watch_socket.h"
#include "plugins/comm/tcp/greeting.h"
#include "plugins/comm/tcp/wires.h"
#include "tests/fuzz/entries.h"
#include "tests/fuzz/want.h"

namespace mtrain::fuzz {
namespace {

/// Bytes of the input, one after the other; 0 where it has ended.
class Input {
 public:
  explicit Input(std::string_view bytes) : left_(bytes) {}
  bool empty() const { return left_.empty(); }
  unsigned byte() {
    unsigned value = empty() ? 0 : static_cast<unsigned char>(left_[0]);
    take(1);
    return value;
  }
  std::string_view take(size_t size) {
    std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view rest() { return take(left_.size()); }

 private:
  std::string_view left_;
};

tcp::RankEnvironment environment_of(int rank) {
  return {.rank = rank,
          .size = 4,
          .address = {},
          .port = 0,
          .job = "job",
          .secret = {"a secret of sixteen", "a test"}};
}

std::string taken_out(tcp::Greeting& from) {
  std::string bytes(from.unsent());
  from.sent(bytes.size());
  return bytes;
}

/// Two ends of one job, whose messages are changed under way: (which, where, how) of three bytes
/// each.
void changed_greeting(Input& input) {
  tcp::Greeting called = tcp::Greeting::called(environment_of(0)),
                caller = tcp::Greeting::calls(environment_of(1), 0, 5);
  std::vector<std::pair<tcp::Greeting*, tcp::Greeting*>> ways = {
      {&called, &caller}, {&caller, &called}, {&called, &caller}};
  std::string changes(input.rest());
  for (size_t message = 0; message < ways.size(); ++message) {
    auto [from, to] = ways[message];
    std::string bytes = taken_out(*from), sent = bytes;
    for (size_t i = 0; i + 2 < changes.size(); i += 3)
      if (static_cast<unsigned char>(changes[i]) % ways.size() == message && !bytes.empty()) {
        char& byte = bytes[static_cast<unsigned char>(changes[i + 1]) % bytes.size()];
        byte = static_cast<char>(byte ^ changes[i + 2]);
      }
    if (bytes.empty()) return;
    to->take(std::string_view(bytes).substr(0, to->wanted()));
    if (bytes != sent)
      return want(to->state() != tcp::Greeting::State::proven || message == 0,
                  "no changed message is believed");
    if (to == &called && called.state() == tcp::Greeting::State::proven)
      called.answer(tcp::Greeting::Verdict::welcome);
  }
  want(caller.state() == tcp::Greeting::State::proven &&
           called.state() == tcp::Greeting::State::proven,
       "unchanged ones are believed");
}

/// A request to receive, with memory after it that is nobody's.
struct Wanted {
  static constexpr size_t kBehind = 1 << 16;
  Wanted(uint32_t tag, int peer, size_t size) : memory(size + kBehind, std::byte{0x5A}) {
    request = std::make_shared<tcp::Request>(tcp::Request{.channel = 7,
                                                          .peer = peer,
                                                          .tag = tag,
                                                          .data = memory.data(),
                                                          .bytes = size,
                                                          .receives = true});
  }
  void check() const {
    want(request->moved <= request->bytes, "no more is received than was wanted");
    bool untouched = std::all_of(memory.end() - kBehind, memory.end(),
                                 [](std::byte b) { return b == std::byte{0x5A}; });
    want(untouched, "nothing is written behind it");
  }
  std::vector<std::byte> memory;
  std::shared_ptr<tcp::Request> request;
};

/// Rank 0 of three over sockets, whose other ranks are the input.
struct Job {
  Job() {
    std::vector<int> mine = {-1};
    for (int& theirs : others) {
      int ends[2] = {-1, -1};
      want(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
           "sockets can be made");
      mine.push_back(ends[0]);
      theirs = ends[1];
    }
    wires.emplace(0, mine);
  }
  ~Job() {
    for (int theirs : others)
      ::close(theirs);  // first, so that nobody waits until what is unsent is sent
  }
  /// Whether the job goes on.
  bool step(const std::function<void()>& what) {
    try {
      what();
    } catch (const Error& error) {
      want(error.error_class() == ErrorClass::peer, "what comes from others is a peer's error");
      return false;
    }
    return !wires->ended();
  }
  void drain() const {
    char buffer[65536];
    for (int theirs : others)
      while (::recv(theirs, buffer, sizeof buffer, 0) > 0) continue;
  }
  int others[2] = {-1, -1};
  std::optional<tcp::Wires> wires;
};

}  // namespace

void tcp_greeting(std::string_view bytes) {
  Input input(bytes);
  unsigned how = input.byte();
  if (how % 4 >= 2) return changed_greeting(input);
  tcp::Greeting greeting = how % 2 == 0 ? tcp::Greeting::called(environment_of(0))
                                        : tcp::Greeting::calls(environment_of(1), 0, 5);
  while (!input.empty() && greeting.wanted() > 0) {
    want(greeting.wanted() <= sizeof(tcp::Greeting::Hello), "no more is wanted than a message has");
    greeting.take(input.take(std::min<size_t>(greeting.wanted(), 1 + how / 4)));
    taken_out(greeting);
  }
  want(greeting.state() != tcp::Greeting::State::proven, "nobody is believed without the secret");
  want(greeting.state() == tcp::Greeting::State::going || !greeting.reason().empty(),
       "a refusal has words");
}

// Each record: what rank 0 does first and who sends, a length of two bytes, and so many bytes.
void tcp_wires(std::string_view bytes) {
  Job job;
  Input input(bytes);
  std::vector<std::unique_ptr<Wanted>> wanted;
  std::vector<std::byte> outgoing(100000, std::byte{1});
  bool goes_on = true;
  while (!input.empty() && goes_on) {
    unsigned what = input.byte(), low = input.byte(), high = input.byte();
    int peer = 1 + static_cast<int>(what % 2);
    if (what / 2 % 4 == 1) wanted.push_back(std::make_unique<Wanted>(1, peer, 100));
    if (what / 2 % 4 == 2) wanted.push_back(std::make_unique<Wanted>(2, -1, 300));
    if (what / 2 % 4 == 1 || what / 2 % 4 == 2)
      goes_on = job.step([&] { job.wires->receive(wanted.back()->request); });
    if (what / 2 % 4 == 3)
      job.wires->send(std::make_shared<tcp::Request>(tcp::Request{.channel = 7,
                                                                  .peer = peer,
                                                                  .tag = 3,
                                                                  .data = outgoing.data(),
                                                                  .bytes = outgoing.size()}));
    std::string_view content = input.take(low + 256 * high);
    while (goes_on && !content.empty()) {
      ssize_t sent = ::send(job.others[peer - 1], content.data(), content.size(), MSG_NOSIGNAL);
      if (sent > 0) content.remove_prefix(static_cast<size_t>(sent));
      goes_on = job.step([&] { job.wires->pump(); }) && (sent > 0 || !job.wires->gone(peer));
      job.drain();
    }
    for (const auto& one : wanted) one->check();
  }
  if (auto status = job.wires->ended())
    want(*status > 0 && *status < 256, "no rank ends others with success");
  for (const auto& one : wanted) job.wires->forget(one->request);
  job.step([&] { job.wires->pump(); });
}

void watch_messages(std::string_view bytes) {
  using namespace std::chrono_literals;
  int ends[2] = {-1, -1};
  want(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
       "sockets can be made");
  WatchSocket socket(ends[0]);
  Input input(bytes);
  if (input.byte() % 2 == 1) socket.trust();
  std::string_view content = input.rest();
  const JobJudge::Time begin{};
  auto now = begin + 1h;
  JobJudge judge(3, {.silence = 5s, .timeout = 10min}, true, begin);
  while (socket.open()) {
    ssize_t sent =
        content.empty() ? 0 : ::send(ends[1], content.data(), content.size(), MSG_NOSIGNAL);
    if (sent > 0) content.remove_prefix(static_cast<size_t>(sent));
    if (content.empty()) ::shutdown(ends[1], SHUT_WR);
    bool open = socket.pump();
    while (auto message = socket.next()) {
      now += 500ms;
      if (auto status = read_status(message->content))
        judge.heard(static_cast<int>(message->type % 3), *status, now);
      if (auto failure = read_failure(message->content))
        want(failure->failure.error_class ==
                 error_class_of(static_cast<int>(failure->failure.error_class)),
             "a class is one of ours");
      if (auto rank = read_hello(message->content, "word", 3))
        want(*rank > 0 && *rank < 3, "a rank is one of the job's");
      judge.look(now);
      judge.slow_rank();
      want(!judge.table().empty(), "ranks have a state");
    }
    if (!open) socket.close();
  }
  ::close(ends[1]);
}

}  // namespace mtrain::fuzz
