// Jobs that are watched: ranks that are threads and get stuck, and processes' watchers over real
// sockets.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "has.h"
#include "mtrain/comm/job_watch.h"
#include "mtrain/comm/thread_world.h"

namespace mtrain {
namespace {

using namespace std::chrono_literals;
using testing::has;
// Within this time a healthy rank comes to run, however busy the machine is. Tests that wait for a
// death wait for most of it, and sleep meanwhile; how long exactly what takes is tested with a
// clock of its own, in job_judge_test.cc.
constexpr auto kSilence = 8s;

void some_steps(Communicator& comm, int count) {
  for (int i = 1; i <= count; ++i) {
    comm.all_reduce_value(1.0f);
    comm.activity()->end_step(i, 0.001);
  }
}

TEST_CASE("watch: a thread that is stuck fails the job and is named, with where the others are") {
  std::atomic<bool> release{false};
  std::promise<std::string> given_up;
  CommContext context{.timeout = 10min,
                      .watch = {.silence = kSilence,
                                .give_up =
                                    [&](const Error& e, bool reports) {
                                      CHECK(e.error_class() == ErrorClass::peer);
                                      CHECK(reports);
                                      given_up.set_value(e.message());
                                      release = true;  // in a job the process would end here
                                    },
                                .note = {}}};
  CHECK_THROWS_AS(run_ranks(
                      3,
                      [&](Communicator& comm) {
                        some_steps(comm, 30);
                        if (comm.rank() == 1)
                          while (!release) std::this_thread::sleep_for(1ms);
                        comm.barrier();
                      },
                      context),
                  Error);
  std::string message = given_up.get_future().get();
  INFO(message);
  CHECK(has(message, "rank 1 on "));
  CHECK(has(message, "has not reached its next call"));
  CHECK(has(message, "ranks 0, 2 on "));
  CHECK(has(message, "30 steps done, in barrier (#31 of group 'world')"));
  CHECK(has(message,
            "30 steps done, computing after all_reduce sum of 1 fp32 (#30 of group 'world')"));
}

TEST_CASE("watch: a thread that throws ends the job also when another one computes on") {
  std::atomic<bool> release{false};
  std::atomic<int> status{0};
  CommContext context{.timeout = 10min,
                      .watch = {.silence = 1s,
                                .give_up =
                                    [&](const Error& e, bool) {
                                      CHECK(has(e.message(), "rank 2 failed: the file ends early"));
                                      status = e.exit_status();
                                      release = true;
                                    },
                                .note = {}}};
  CHECK_THROWS_WITH_AS(run_ranks(
                           3,
                           [&](Communicator& comm) {
                             comm.barrier();
                             if (comm.rank() == 2)
                               throw Error(ErrorClass::data, "the file ends early");
                             if (comm.rank() == 0)
                               while (!release) std::this_thread::sleep_for(1ms);
                             comm.barrier();
                           },
                           context),
                       "the file ends early", Error);
  CHECK(status == static_cast<int>(ErrorClass::data));
}

TEST_CASE("watch: ranks that are slow in something they announce are left alone") {
  CommContext context{.timeout = 10min,
                      .watch = {.silence = kSilence,
                                .give_up = [](const Error& e, bool) { FAIL(e.message()); },
                                .note = {}}};
  run_ranks(
      2,
      [&](Communicator& comm) {
        some_steps(comm, 30);
        if (comm.rank() == 0) {
          LongOperation saving(comm.activity(), "saving a checkpoint");
          std::this_thread::sleep_for(kSilence + 1s);
        }
        comm.barrier();
      },
      context);
}

/// Watchers of a job of `n` ranks, each as in a process of its own.
struct Watched {
  explicit Watched(int n, std::chrono::milliseconds silence) {
    std::vector<std::string> hosts;
    for (int r = 0; r < n; ++r) hosts.push_back("host" + std::to_string(r % 2));
    for (int r = 0; r < n; ++r)
      ranks.push_back(std::make_unique<JobWatch>(
          r, hosts,
          CommContext{.timeout = 10min, .watch = {.silence = silence, .give_up = {}, .note = {}}}));
    endpoint = ranks[0]->open_endpoint();
    std::string reason;
    for (int r = 1; r < n; ++r)
      REQUIRE_MESSAGE(ranks[static_cast<size_t>(r)]->connect(endpoint, reason), reason);
    for (auto& rank : ranks) rank->begin();
  }
  std::string failure(int rank) {
    for (int i = 0; i < 30000 && !ranks[static_cast<size_t>(rank)]->failed(); ++i)
      std::this_thread::sleep_for(10ms);
    auto failure = ranks[static_cast<size_t>(rank)]->failure();
    return failure ? failure->reason : "none";
  }
  std::string endpoint;
  std::vector<std::unique_ptr<JobWatch>> ranks;
};

TEST_CASE("watch: a stuck rank is reported to all processes") {
  Watched job(3, kSilence);
  CommCall call{.kind = CommKind::barrier};
  for (int r = 0; r < 3; ++r) {
    RankActivity& a = job.ranks[static_cast<size_t>(r)]->activity();
    for (int i = 1; i <= 20; ++i) a.end_step(i, 0.001);
    if (r != 1) a.begin_wait(call, 4, "dp");
  }
  for (int r = 0; r < 3; ++r) {
    std::string message = job.failure(r);
    INFO(message);
    CHECK(has(message, "rank 1 on host1 has not reached its next call"));
    CHECK(has(message, "rank 2 on host0: 20 steps done, in barrier (#4 of group 'dp')") ==
          has(message, "rank 0 on host0: 20 steps done, in barrier (#4 of group 'dp')"));
  }
}

TEST_CASE(
    "watch: an error that a rank reports itself stops the judges, and who does not end is ended "
    "with its "
    "class") {
  std::atomic<int> ended{0};
  std::vector<std::unique_ptr<JobWatch>> ranks;
  CommContext context{.timeout = 10min,
                      .watch = {.silence = kSilence,
                                .give_up =
                                    [&](const Error& e, bool reports) {
                                      CHECK(e.message() == "rank 1 failed: the disk is full");
                                      CHECK(e.error_class() == ErrorClass::io);
                                      CHECK_FALSE(reports);
                                      ++ended;
                                    },
                                .note = {}}};
  for (int r = 0; r < 3; ++r)
    ranks.push_back(std::make_unique<JobWatch>(r, std::vector<std::string>(3, "h"), context));
  std::string endpoint = ranks[0]->open_endpoint(), reason;
  for (int r = 1; r < 3; ++r) REQUIRE(ranks[static_cast<size_t>(r)]->connect(endpoint, reason));
  for (auto& rank : ranks) rank->begin();
  ranks[1]->report_failure("the disk is full", ErrorClass::io);
  for (int i = 0; i < 30000 && ended < 3; ++i) std::this_thread::sleep_for(10ms);
  CHECK(ended.load() == 3);
}

TEST_CASE("watch: ranks that end well say farewell, in any order") {
  for (int first_to_go : {0, 2}) {
    Watched job(3, 1min);
    for (auto& rank : job.ranks) rank->activity().end();
    job.ranks[static_cast<size_t>(first_to_go)]->end();
    std::this_thread::sleep_for(400ms);
    for (auto& rank : job.ranks) {
      CHECK_FALSE(rank->failed());
      rank->end();
    }
  }
}

TEST_CASE("watch: a first rank that cannot be reached is said, with why") {
  JobWatch lone(1, {"a", "b"},
                CommContext{.timeout = 1min, .watch = {.silence = 1s, .give_up = {}, .note = {}}});
  std::string reason;
  CHECK_FALSE(lone.connect("1 word 127.0.0.1", reason));  // nobody listens at port 1
  CHECK(has(reason, "127.0.0.1: "));
  CHECK_FALSE(lone.connect("", reason));
}

/// A connection to where the first rank listens; -1 when nobody does.
int visit(const std::string& endpoint) {
  int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(std::stoi(endpoint)));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(s, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0) return s;
  ::close(s);
  return -1;
}
/// Waits until the other end has closed it.
bool is_closed(int s) {
  char byte;
  bool closed = ::recv(s, &byte, 1, 0) <= 0;
  ::close(s);
  return closed;
}
std::string frame(uint32_t type, const std::string& content, uint32_t length) {
  uint32_t head[] = {0x4D545743, type, length};
  return std::string(reinterpret_cast<const char*>(head), sizeof head) + content;
}

/// The first of two ranks, whose other one is this test.
struct FirstOfTwo {
  explicit FirstOfTwo(std::chrono::milliseconds silence)
      : first(0, {"a", "b"},
              {.timeout = 10min, .watch = {.silence = silence, .give_up = {}, .note = {}}}),
        endpoint(first.open_endpoint()) {}
  std::string hello(int rank) const {
    std::string word = endpoint.substr(endpoint.find(' ') + 1, 32),
                text = word + " " + std::to_string(rank);
    return frame(1, text, static_cast<uint32_t>(text.size()));
  }
  JobWatch first;
  std::string endpoint;
};

TEST_CASE(
    "watch: connections of strangers are dropped, and the port is closed once all ranks are "
    "connected") {
  FirstOfTwo job(10min);
  int silent = visit(job.endpoint), rank = visit(job.endpoint);
  job.first.begin();
  for (const std::string& words :
       {std::string("GET / HTTP/1.0\r\n\r\n"), std::string(100000, '\xff'), frame(1, "word", 4),
        frame(1, "", 1 << 20), frame(2, "", 0)}) {
    int s = visit(job.endpoint);
    REQUIRE(s >= 0);
    [[maybe_unused]] ssize_t sent = ::send(s, words.data(), words.size(), MSG_NOSIGNAL);
    CHECK(is_closed(s));
  }
  int late = visit(job.endpoint);
  std::string hello = job.hello(1);
  CHECK(::send(rank, hello.data(), hello.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(hello.size()));
  CHECK(is_closed(silent));  // the rank that was missing has come
  CHECK(is_closed(late));
  CHECK(visit(job.endpoint) < 0);
  CHECK_FALSE(job.first.failed());
  ::close(rank);
}

TEST_CASE("watch: of very many silent strangers the oldest go, and a rank gets in") {
  FirstOfTwo job(10min);
  std::vector<int> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(visit(job.endpoint));
  job.first.begin();
  CHECK(is_closed(silent[0]));
  int rank = visit(job.endpoint);
  std::string hello = job.hello(1);
  CHECK(::send(rank, hello.data(), hello.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(hello.size()));
  for (size_t i = 1; i < silent.size(); ++i) CHECK(is_closed(silent[i]));
  CHECK_FALSE(job.first.failed());
  ::close(rank);
}

TEST_CASE("watch: who says nothing goes also while ranks are missing") {
  FirstOfTwo job(10min);
  int silent = visit(job.endpoint);
  job.first.begin();
  CHECK(is_closed(silent));
  CHECK_FALSE(job.first.failed());
}

TEST_CASE("watch: a rank's failure ends the job with no status of success") {
  std::promise<int> status;
  JobWatch first(
      0, {"a", "b"},
      {.timeout = 10min,
       .watch = {.silence = 1s,
                 .give_up = [&](const Error& e, bool) { status.set_value(e.exit_status()); },
                 .note = {}}});
  std::string endpoint = first.open_endpoint(),
              word = endpoint.substr(endpoint.find(' ') + 1, 32) + " 1";
  int rank = visit(endpoint);
  int32_t head[] = {1, 256, 0};  // its number, its error class, and no other ranks
  std::string failed(reinterpret_cast<const char*>(head), sizeof head);
  std::string words =
      frame(1, word, static_cast<uint32_t>(word.size())) + frame(6, failed, sizeof head);
  CHECK(::send(rank, words.data(), words.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(words.size()));
  first.begin();
  CHECK(status.get_future().get() == static_cast<int>(ErrorClass::peer));
  ::close(rank);
}

}  // namespace
}  // namespace mtrain
