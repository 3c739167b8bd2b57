// What is special about ranks in one process: whose failure is reported, ranks that end early, many
// threads on few cores.
#include "mtrain/comm/thread_world.h"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "has.h"

namespace mtrain {
namespace {

using namespace std::chrono_literals;
using testing::has;

std::string caught(ErrorClass wanted, const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& e) {
    CHECK(e.error_class() == wanted);
    return e.message();
  }
  return "";
}
TEST_CASE(
    "run_ranks: the error of the rank that failed first is thrown, and the others are released") {
  std::atomic<int> released{0};
  auto run = [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 2) throw Error(ErrorClass::data, "the file ends early");
    try {
      for (;;) comm.all_reduce_value(1.0f);
    } catch (const Error& e) {
      CHECK(e.error_class() == ErrorClass::peer);
      CHECK(has(e.message(), "rank 2 failed: "));
      CHECK(has(e.message(), "the file ends early"));
      ++released;
      throw;
    }
  };
  CHECK(caught(ErrorClass::data, [&] { run_ranks(4, run); }) == "the file ends early");
  CHECK(released == 3);
}

TEST_CASE("run_ranks: exceptions of any type pass") {
  CHECK_THROWS_AS(run_ranks(2,
                            [](Communicator& c) {
                              if (c.rank() == 1) throw std::runtime_error("x");
                              c.barrier();
                            }),
                  std::runtime_error);
  CHECK_THROWS_AS(run_ranks(2,
                            [](Communicator& c) {
                              if (c.rank() == 0) throw 5;
                              c.barrier();
                            }),
                  int);
}

TEST_CASE("run_ranks: nobody waits for a rank that has ended") {
  std::string message = caught(ErrorClass::peer, [] {
    run_ranks(3, [](Communicator& comm) {
      comm.barrier();
      if (comm.rank() == 1) return;
      comm.all_reduce_value(1);
    });
  });
  CHECK(has(message, "rank 1 has ended and will not reach all_reduce"));
  CHECK(has(message, "its last call was barrier #1 of group 'world'"));
}

TEST_CASE("run_ranks: a barrier orders memory") {
  constexpr int kRanks = 8;
  std::vector<int> plain(kRanks,
                         0);  // without the barrier's order the thread sanitizer finds a race
  run_ranks(kRanks, [&](Communicator& comm) {
    for (int round = 1; round <= 50; ++round) {
      plain[static_cast<size_t>(comm.rank())] = round;
      comm.barrier();
      for (int v : plain) CHECK(v == round);
      comm.barrier();
    }
  });
}

TEST_CASE("run_ranks: many small calls by more threads than cores") {
  run_ranks(16, [](Communicator& comm) {
    auto pairs = comm.split(comm.rank() / 2, 0, "pair");
    int64_t sum = 0;
    for (int i = 0; i < 300; ++i) {
      sum += pairs->all_reduce_value(int64_t{i});
      sum += comm.all_reduce_value(int64_t{1});
    }
    CHECK(sum == 2 * 299 * 150 + 16 * 300);
  });
}

TEST_CASE("run_ranks: a failure in the midst of large calls leaves no memory in use") {
  for (int round = 0; round < 20; ++round) {
    std::string message = caught(ErrorClass::io, [&] {
      run_ranks(4, [&](Communicator& comm) {
        std::vector<float> mine(200000, 1.0f);  // freed as the failing rank unwinds
        Pending started = comm.start_all_reduce(mine);
        if (comm.rank() == round % 4) throw Error(ErrorClass::io, "gone");
        started.wait();
        comm.barrier();
      });
    });
    CHECK(message == "gone");
  }
}

TEST_CASE("ThreadWorld: communicators and started calls outlive what they came from") {
  std::unique_ptr<Communicator> kept[2];
  run_ranks(2, [&](Communicator& comm) {
    auto parent = comm.split(0, 0, "parent");
    kept[comm.rank()] = parent->split(0, 0, "child");
  });
  CHECK(kept[0]->name() == "child");
  std::vector<float> a = {1}, b = {2};
  Pending first = kept[0]->start_all_reduce(a), second = kept[1]->start_all_reduce(b);
  kept[0].reset();
  kept[1].reset();
  first.wait();
  CHECK(second.done());
  CHECK(a[0] == 3);
  CHECK(b[0] == 3);
}

TEST_CASE("self: a failed job of one rank stays failed") {
  auto comm = make_self_communicator();
  CHECK(comm->kind() == "self");
  comm->barrier();
  auto group = comm->split(3, 0, "part");
  CHECK(group->name() == "part");
  CHECK(comm->split(-1, 0) == nullptr);
  group->abort("no memory");
  group->abort("later");
  CHECK(has(caught(ErrorClass::peer, [&] { comm->barrier(); }),
            "rank 0 failed: no memory; rank 0 was in barrier"));
}

}  // namespace
}  // namespace mtrain
