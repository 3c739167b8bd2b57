// Groups made by split(), calls under way together, what is counted, and arguments that make no
// sense.
#include <algorithm>
#include <thread>

#include "contract/comm/fixture.h"

namespace mtrain::contract {
namespace {

TEST_CASE("comm: a world knows itself") {
  for (int size : comm_fixture().sizes())
    comm_fixture().run(size, [size](Communicator& comm) {
      CHECK(comm.size() == size);
      CHECK(comm.rank() >= 0);
      CHECK(comm.rank() < size);
      CHECK(static_cast<int>(comm.world_ranks().size()) == size);
      std::vector<int32_t> mine = {comm.rank()}, all(static_cast<size_t>(size));
      comm.all_gather(mine, all);
      for (int r = 0; r < size; ++r) CHECK(all[static_cast<size_t>(r)] == r);
    });
}

TEST_CASE("comm: split orders by key, then rank; leaves out negative colors; nests") {
  for (int size : comm_fixture().sizes())
    comm_fixture().run(size, [size](Communicator& comm) {
      auto reversed = comm.split(0, -comm.rank(), "reversed");
      REQUIRE(reversed);
      CHECK(reversed->size() == size);
      CHECK(reversed->rank() == size - 1 - comm.rank());
      CHECK(reversed->name() == "reversed");
      CHECK(reversed->kind() == comm.kind());
      CHECK(reversed->world_ranks()[static_cast<size_t>(reversed->rank())] ==
            comm.world_ranks()[static_cast<size_t>(comm.rank())]);
      auto same_key = comm.split(7, 1);
      CHECK(same_key->rank() == comm.rank());

      auto odd = comm.split(comm.rank() % 2 == 1 ? 0 : -1, 0, "odd");
      CHECK((odd != nullptr) == (comm.rank() % 2 == 1));
      if (odd) {
        CHECK(odd->rank() == comm.rank() / 2);
        CHECK(odd->all_reduce_value(int32_t{1}) == size / 2);
        auto alone = odd->split(odd->rank(), 0, "alone");
        CHECK(alone->size() == 1);
        CHECK(alone->all_reduce_value(2.5) == 2.5);
        alone->barrier();
      }
      std::vector<int32_t> mine = {comm.rank()}, all(static_cast<size_t>(size));
      reversed->all_gather(mine, all);
      for (int r = 0; r < size; ++r) CHECK(all[static_cast<size_t>(r)] == size - 1 - r);
    });
}

TEST_CASE("comm: rows and columns of a grid work at the same time") {
  for (int size : comm_fixture().sizes()) {
    if (size % 2 != 0) continue;
    comm_fixture().run(size, [size](Communicator& comm) {
      int columns = size == 8 ? 4 : 2, row = comm.rank() / columns, column = comm.rank() % columns;
      auto rows = comm.split(row, column, "row"), cols = comm.split(column, row, "column");
      const int64_t count = 30011;
      for (int round = 0; round < 5; ++round) {
        auto x = values<int64_t>(comm.rank(), count, 20),
             y = values<int64_t>(comm.rank(), count, 21);
        Pending in_row = rows->start_all_reduce(x), in_column = cols->start_all_reduce(y);
        // Which one a rank waits for first differs between neighbours.
        if ((row + column) % 2 == 0) in_row.wait();
        in_column.wait();
        in_row.wait();
        uint64_t want_x = 0, want_y = 0;
        for (int r = 0; r < size; ++r) {
          if (r / columns == row) want_x += static_cast<uint64_t>(value<int64_t>(r, count - 1, 20));
          if (r % columns == column)
            want_y += static_cast<uint64_t>(value<int64_t>(r, count - 1, 21));
        }
        CHECK(static_cast<uint64_t>(x.back()) == want_x);
        CHECK(static_cast<uint64_t>(y.back()) == want_y);
      }
    });
  }
}

TEST_CASE("comm: a blocking call of one group passes while calls of others are not waited for") {
  for (int size : comm_fixture().sizes())
    comm_fixture().run(size, [size](Communicator& comm) {
      auto other = comm.split(0, -comm.rank(), "other");
      auto x = values<float>(comm.rank(), kLargeCount, 22);
      Pending large = other->start_all_reduce(x);
      // Even ranks go on without waiting, odd ranks wait first: neither may need the other.
      if (comm.rank() % 2 == 1) large.wait();
      CHECK(comm.all_reduce_value(1.0) == size);
      large.wait();
      CHECK(large.done());
      float want = value<float>(other->size() - 1, 0, 22);  // `other` counts ranks from the last
      for (int r = size - 2; r >= 0; --r) want += value<float>(r, 0, 22);
      CHECK(x[0] == want);
    });
}

TEST_CASE("comm: started calls may be waited for in any order") {
  for (int size : comm_fixture().sizes())
    comm_fixture().run(size, [size](Communicator& comm) {
      constexpr int kCalls = 12;
      std::vector<std::vector<int32_t>> data;
      for (int c = 0; c < kCalls; ++c)
        data.push_back(std::vector<int32_t>(static_cast<size_t>(1 + c * 977), comm.rank() + c));
      std::vector<Pending> calls;
      for (auto& d : data) calls.push_back(comm.start_all_reduce(d));
      calls.push_back(comm.start_barrier());
      if (comm.rank() % 2 == 0) std::reverse(calls.begin(), calls.end());
      if (comm.rank() % 3 == 2)
        for (Pending& p : calls)
          while (!p.done()) std::this_thread::yield();
      for (Pending& p : calls) p.wait();
      for (int c = 0; c < kCalls; ++c) {
        int32_t want = size * (size - 1) / 2 + size * c;
        CHECK(std::all_of(data[static_cast<size_t>(c)].begin(), data[static_cast<size_t>(c)].end(),
                          [want](int32_t v) { return v == want; }));
      }
    });
}

TEST_CASE("comm: calls and bytes are counted by the rule of CommCounters") {
  for (int size : comm_fixture().sizes())
    comm_fixture().run(size, [size](Communicator& comm) {
      int64_t n = size;
      auto zero = comm.counters().total();
      CHECK(zero.calls == 0);
      std::vector<float> whole(static_cast<size_t>(10 * n)), part(10), other(whole.size());
      std::vector<bf16> odd(7);
      comm.all_reduce(whole);
      comm.all_reduce(odd);
      CHECK(comm.counters()[CommKind::all_reduce].calls == 2);
      CHECK(comm.counters()[CommKind::all_reduce].bytes_sent ==
            2 * (n - 1) * 40 + 2 * (n - 1) * 14 / n);
      comm.all_gather(part, whole);
      CHECK(comm.counters()[CommKind::all_gather].bytes_sent == (n - 1) * 40);
      comm.reduce_scatter(whole, part);
      CHECK(comm.counters()[CommKind::reduce_scatter].bytes_sent == (n - 1) * 40);
      comm.all_to_all(whole, other);
      CHECK(comm.counters()[CommKind::all_to_all].bytes_sent == (n - 1) * 40);
      std::vector<int64_t> counts(static_cast<size_t>(n), 10);
      comm.all_to_all_v(whole, counts, other, counts);
      CHECK(comm.counters()[CommKind::all_to_all].bytes_sent == 2 * (n - 1) * 40);
      comm.broadcast(part, size - 1);
      CHECK(comm.counters()[CommKind::broadcast].bytes_sent ==
            (comm.rank() == size - 1 ? (n - 1) * 40 : 0));
      comm.barrier();
      CHECK(comm.counters()[CommKind::barrier].bytes_sent == 0);
      if (size > 1 && comm.rank() == 0) comm.send(part, 1);
      if (comm.rank() == 1) comm.recv(part, 0);
      CHECK(comm.counters()[CommKind::send].bytes_sent == (size > 1 && comm.rank() == 0 ? 40 : 0));
      CHECK(comm.counters()[CommKind::recv].calls == (comm.rank() == 1 ? 1 : 0));
      auto group = comm.split(0, 0);
      CHECK(group->counters().total().calls == 0);
      CHECK(comm.counters().total().calls == 9 + (comm.rank() < 2 && size > 1 ? 1 : 0));
    });
}

TEST_CASE("comm: senseless arguments are bugs, and the job goes on") {
  for (int size : comm_fixture().sizes())
    comm_fixture().run(size, [size](Communicator& comm) {
      std::vector<float> x(4), y(static_cast<size_t>(4 * size) + 1);
      std::vector<uint8_t> bytes(4);
      auto bug = [](auto&& fn) { return !message_of(ErrorClass::bug, fn).empty(); };
      CHECK(bug([&] { comm.all_reduce(bytes); }));
      CHECK(bug([&] { comm.all_reduce(Buffer(nullptr, 3, DType::f32)); }));
      CHECK(bug([&] { comm.all_gather(x, y); }));
      CHECK(bug([&] { comm.all_gather(bytes, x); }));
      CHECK(bug([&] { comm.reduce_scatter(y, x); }));
      CHECK(bug([&] { comm.broadcast(x, size); }));
      CHECK(bug([&] { comm.send(x, comm.rank()); }));
      CHECK(bug([&] { comm.recv(x, size); }));
      CHECK(bug([&] { comm.recv(x, -1); }));
      std::vector<int64_t> wrong(static_cast<size_t>(size), 5);
      CHECK(bug([&] { comm.all_to_all_v(x, wrong, x, wrong); }));
      if (size > 1) CHECK(bug([&] { comm.all_to_all(y, y); }));
      if (size > 1) CHECK(bug([&] { comm.send(x, (comm.rank() + 1) % size, kMaxTag + 1); }));
      CHECK(comm.all_reduce_value(int64_t{1}) == size);
    });
}

}  // namespace
}  // namespace mtrain::contract
