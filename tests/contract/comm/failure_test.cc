// Jobs that fail: every rank hears of it, from whatever call it is in, and nobody hangs.
#include <chrono>
#include <thread>

#include "contract/comm/fixture.h"
#include "mtrain/base/text.h"

namespace mtrain::contract {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 10min;  // longer than any test may take
constexpr auto kCallLimit =
    10s;  // far longer than a rank of a busy machine takes for its next call
/// A group of two, and the largest: for what takes seconds.
std::vector<int> few_sizes() {
  std::vector<int> sizes = comm_fixture().sizes();
  std::erase_if(sizes, [](int size) { return size < 2; });
  return sizes.size() > 2 ? std::vector{sizes.front(), sizes.back()} : sizes;
}
std::string failure_of(Communicator& comm, const std::function<void(Communicator&)>& fn) {
  return message_of(ErrorClass::peer, [&] { fn(comm); });
}
/// Returns when this rank has heard, outside of any call, that the job has failed.
void await_failure(const Communicator& comm) {
  const CommCall call{.kind = CommKind::barrier};
  while (message_of(ErrorClass::peer, [&] { comm.require_alive_for(call); }).empty())
    std::this_thread::sleep_for(5ms);
}
void expect(const std::string& message, const std::vector<std::string>& parts) {
  INFO(message);
  CHECK(!message.empty());
  for (const std::string& part : parts) {
    INFO("wanted: ", part);
    CHECK(has(message, part));
  }
}

TEST_CASE(
    "comm fails: abort reaches ranks that wait in different calls, and those that come later") {
  for (int size : comm_fixture().sizes()) {
    if (size < 2) continue;
    comm_fixture().run_failing(size, kPatience, [size](Communicator& comm) {
      auto group = comm.split(0, 0, "other");
      comm.barrier();
      int last = size - 1;
      if (comm.rank() == last) {
        std::this_thread::sleep_for(20ms);
        comm.abort("the disk is full");
        expect(failure_of(comm, [](auto& c) { c.barrier(); }),
               {cat("rank ", last, " failed: the disk is full")});
        return;
      }
      std::vector<float> x(1000);
      std::string place, message;
      switch (comm.rank() % 4) {
        case 0:
          message = failure_of(*group, [&](auto& c) { c.all_reduce(x); });
          place = "all_reduce sum of 1000 fp32 (#1 of group 'other'";
          break;
        case 1:
          message = failure_of(comm, [&](auto& c) { c.recv(x, last, 3); });
          place = cat("recv of 1000 fp32 from rank ", last, ", tag 3 (#1 of group 'world'");
          break;
        case 2:
          message = failure_of(comm, [&](auto& c) { c.start_broadcast(x, last).wait(); });
          place = cat("broadcast of 1000 fp32 from rank ", last, " (#3 of group 'world'");
          break;
        default:
          std::this_thread::sleep_for(60ms);
          message = failure_of(*group, [&](auto& c) { c.barrier(); });
          place = "barrier (#1 of group 'other'";
      }
      expect(message, {cat("rank ", last, " failed: the disk is full"),
                       cat("rank ", comm.rank(), " was in ", place)});
      // Nothing works any more, in any group.
      expect(failure_of(comm, [](auto& c) { c.all_reduce_value(1.0); }), {"the disk is full", "#"});
      expect(failure_of(*group, [](auto& c) { c.split(0, 0); }), {"the disk is full", "split"});
    });
  }
}

TEST_CASE("comm fails: the first reason counts") {
  for (int size : comm_fixture().sizes()) {
    if (size < 2) continue;
    comm_fixture().run_failing(size, kPatience, [](Communicator& comm) {
      std::string message = failure_of(comm, [](auto& c) {
        c.barrier();
        if (c.rank() == 0) c.abort("first");
        c.barrier();
      });
      comm.abort("second");
      expect(message, {"rank 0 failed: first"});
      expect(failure_of(comm, [](auto& c) { c.barrier(); }), {"rank 0 failed: first"});
    });
  }
}

TEST_CASE("comm fails: the time limit names who has not come and what they did last") {
  for (int size : few_sizes()) {
    comm_fixture().run_failing(size, kCallLimit, [size](Communicator& comm) {
      auto group = comm.split(0, 0, "late");
      comm.barrier();
      int last = size - 1;
      auto begin = std::chrono::steady_clock::now();
      if (comm.rank() == last) await_failure(comm);
      std::string message = failure_of(*group, [](auto& c) { c.all_reduce_value(1.0f); });
      auto took = std::chrono::steady_clock::now() - begin;
      expect(message, {cat("rank ", last, " (last "), "barrier #2 of group 'world'",
                       "all_reduce sum of 1 fp32 (#1 of group 'late'"});
      if (comm.rank() != last) CHECK(took > kCallLimit - 100ms);
    });
  }
}

TEST_CASE("comm fails: a message that nobody takes runs into the time limit") {
  for (int size : few_sizes()) {
    comm_fixture().run_failing(size, kCallLimit, [](Communicator& comm) {
      std::vector<float> x(kLargeCount);
      comm.barrier();
      if (comm.rank() == 0) {
        expect(failure_of(comm, [&](auto& c) { c.send(x, 1, 4); }),
               {"rank 0 waited", "rank 1 (last ", "barrier #1 of group 'world'"});
      } else {
        await_failure(comm);
        expect(failure_of(comm, [&](auto& c) { c.barrier(); }), {"rank 0 failed", "send of"});
      }
    });
  }
}

void expect_mismatch(const std::function<void(Communicator&)>& one,
                     const std::function<void(Communicator&)>& others,
                     const std::vector<std::string>& parts) {
  for (int size : comm_fixture().sizes()) {
    if (size < 2) continue;
    comm_fixture().run_failing(size, kPatience, [&](Communicator& comm) {
      // Others may fail the job while a rank is still in the barrier.
      std::string message = failure_of(comm, [&](auto& c) {
        c.barrier();
        (c.rank() == 1 ? one : others)(c);
        c.barrier();  // those whom the disagreement does not touch may come through
      });
      expect(message, {"ranks disagree on call #2 of group 'world'", "rank 1 calls"});
      expect(message, parts);
    });
  }
}

TEST_CASE("comm fails: ranks that disagree on the kind") {
  expect_mismatch([](auto& c) { c.barrier(); }, [](auto& c) { c.all_reduce_value(1.0); },
                  {"rank 1 calls barrier", "calls all_reduce sum of 1 fp64"});
}
TEST_CASE("comm fails: ranks that disagree on the count") {
  std::vector<float> x(5), y(6);
  expect_mismatch(
      [x](auto& c) {
        auto v = x;
        c.all_reduce(v);
      },
      [y](auto& c) {
        auto v = y;
        c.all_reduce(v);
      },
      {"sum of 5 fp32", "sum of 6 fp32"});
}
TEST_CASE("comm fails: ranks that disagree on a large count") {
  expect_mismatch(
      [](auto& c) {
        std::vector<float> v(kLargeCount);
        c.all_reduce(v);
      },
      [](auto& c) {
        std::vector<float> v(kLargeCount + 1);
        c.all_reduce(v);
      },
      {cat("sum of ", kLargeCount, " fp32"), cat("sum of ", kLargeCount + 1, " fp32")});
}
TEST_CASE("comm fails: ranks that disagree on the dtype") {
  expect_mismatch([](auto& c) { c.all_reduce_value(int32_t{1}); },
                  [](auto& c) { c.all_reduce_value(1.0f); }, {"1 int32", "1 fp32"});
}
TEST_CASE("comm fails: ranks that disagree on the operation") {
  expect_mismatch([](auto& c) { c.all_reduce_value(1.0f, ReduceOp::max); },
                  [](auto& c) { c.all_reduce_value(1.0f); }, {"max of 1 fp32", "sum of 1 fp32"});
}
TEST_CASE("comm fails: ranks that disagree on the root") {
  expect_mismatch(
      [](auto& c) {
        std::vector<float> v(2);
        c.broadcast(v, 1);
      },
      [](auto& c) {
        std::vector<float> v(2);
        c.broadcast(v, 0);
      },
      {"from rank 1", "from rank 0"});
}
TEST_CASE("comm fails: ranks that disagree on the blocks of all_to_all_v") {
  auto exchange = [](Communicator& c, int64_t to_first) {
    std::vector<int64_t> send(static_cast<size_t>(c.size()), 1), recv = send;
    send[0] = to_first;
    if (c.rank() == 0) recv[0] = to_first;
    std::vector<float> x(send.size() - 1 + static_cast<size_t>(to_first)),
        y(c.rank() == 0 ? x.size() : recv.size());
    c.all_to_all_v(x, send, y, recv);
  };
  expect_mismatch([&](auto& c) { exchange(c, 2); }, [&](auto& c) { exchange(c, 1); },
                  {"all_to_all_v of fp32"});
}
TEST_CASE("comm fails: ranks that disagree on the even and the uneven form") {
  expect_mismatch(
      [](auto& c) {
        std::vector<int64_t> counts(static_cast<size_t>(c.size()), 1);
        std::vector<float> x(counts.size()), y = x;
        c.all_to_all_v(x, counts, y, counts);
      },
      [](auto& c) {
        std::vector<float> x(static_cast<size_t>(c.size())), y = x;
        c.all_to_all(x, y);
      },
      {"all_to_all of 1 fp32 per rank"});
}
TEST_CASE("comm fails: one rank splits and the others reduce") {
  expect_mismatch([](auto& c) { c.split(0, 0); }, [](auto& c) { c.all_reduce_value(1.0f); },
                  {"rank 1 calls split"});
}

TEST_CASE("comm fails: ranks that name their new group differently") {
  for (int size : comm_fixture().sizes()) {
    if (size < 2) continue;
    comm_fixture().run_failing(size, kPatience, [](Communicator& comm) {
      comm.split(comm.rank() % 2, 0, comm.rank() % 2 == 0 ? "even" : "odd");
      expect(failure_of(comm,
                        [](auto& c) {
                          c.split(0, 0, c.rank() == 1 ? "tp" : "dp");
                          c.barrier();
                        }),
             {"disagree on the name", "group 'world'", "'tp'", "rank 1 ", "'dp'"});
    });
  }
}

TEST_CASE("comm fails: a message and its receiver disagree") {
  for (int size : comm_fixture().sizes()) {
    if (size < 2) continue;
    comm_fixture().run_failing(size, kPatience, [](Communicator& comm) {
      std::vector<float> x(3), y(4);
      std::string message = failure_of(comm, [&](auto& c) {
        c.barrier();
        if (c.rank() == 0) c.send(x, 1, 2);
        if (c.rank() == 1) c.recv(y, 0, 2);
        c.barrier();
      });
      expect(message, {"ranks disagree", "send of 3 fp32 to rank 1, tag 2",
                       "recv of 4 fp32 from rank 0, tag 2"});
    });
  }
}

TEST_CASE("comm fails: a call that is dropped unfinished") {
  for (int size : comm_fixture().sizes()) {
    if (size < 2) continue;
    comm_fixture().run_failing(size, kPatience, [](Communicator& comm) {
      std::string message = failure_of(comm, [](auto& c) {
        c.barrier();
        std::vector<float> y(kLargeCount);
        if (c.rank() == 0) {
          std::vector<float> x(kLargeCount);
          Pending dropped = c.start_all_reduce(x);
        } else {
          std::this_thread::sleep_for(20ms);
        }
        for (int i = 0; i < 2; ++i) c.all_reduce(y);
      });
      expect(message, {"rank 0 failed: it dropped all_reduce sum of", "before it was complete"});
    });
  }
}

}  // namespace
}  // namespace mtrain::contract
