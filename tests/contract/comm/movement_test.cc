// The collectives that move data, messages, and the barrier.
#include <chrono>
#include <thread>

#include "contract/comm/fixture.h"

namespace mtrain::contract {
namespace {

template <class Fn>
void for_moved_types(Fn&& fn) {
  fn(Element<uint8_t>());
  fn(Element<bf16>());
  fn(Element<int32_t>());
  fn(Element<double>());
}

TEST_CASE("comm: all_gather lays the parts out in the order of ranks, elsewhere or in place") {
  for (int size : comm_fixture().sizes())
    comm_fixture().run(size, [size](Communicator& comm) {
      for_moved_types([&]<class T>(Element<T>) {
        for (int64_t whole : kCounts) {
          int64_t count = whole < 10 ? whole : whole / size;
          INFO(size, " ranks, ", count, " ", name(DTypeOf<T>::value));
          std::vector<T> want;
          for (int r = 0; r < size; ++r) {
            auto part = values<T>(r, count, 6);
            want.insert(want.end(), part.begin(), part.end());
          }
          std::vector<T> result(want.size());
          auto mine = values<T>(comm.rank(), count, 6);
          comm.all_gather(mine, result);
          CHECK(same_bits(result, want));
          std::vector<T> in_place(want.size());
          std::copy(mine.begin(), mine.end(), in_place.begin() + comm.rank() * count);
          comm.all_gather(
              ConstBuffer(in_place.data() + comm.rank() * count, count, DTypeOf<T>::value),
              in_place);
          CHECK(same_bits(in_place, want));
        }
      });
    });
}

TEST_CASE("comm: all_to_all transposes parts between ranks") {
  for (int size : comm_fixture().sizes())
    comm_fixture().run(size, [size](Communicator& comm) {
      for_moved_types([&]<class T>(Element<T>) {
        for (int64_t whole : kCounts) {
          int64_t count = whole < 10 ? whole : whole / size;
          INFO(size, " ranks, ", count, " ", name(DTypeOf<T>::value));
          auto data = values<T>(comm.rank(), count * size, 7);
          std::vector<T> result(data.size()), want;
          for (int r = 0; r < size; ++r)
            for (int64_t i = 0; i < count; ++i)
              want.push_back(value<T>(r, comm.rank() * count + i, 7));
          comm.all_to_all(data, result);
          CHECK(same_bits(result, want));
        }
      });
    });
}

TEST_CASE("comm: all_to_all_v takes blocks of any size, none among them") {
  for (int size : comm_fixture().sizes())
    comm_fixture().run(size, [size](Communicator& comm) {
      for (int64_t unit : {int64_t{0}, int64_t{1}, int64_t{13}, kLargeCount / 64}) {
        auto block = [unit, size](int from, int to) {
          return unit * ((from * 3 + to * 5 + 1) % (size + 1));
        };
        std::vector<int64_t> send, recv;
        for (int r = 0; r < size; ++r) {
          send.push_back(block(comm.rank(), r));
          recv.push_back(block(r, comm.rank()));
        }
        auto total = [](const std::vector<int64_t>& v) {
          int64_t sum = 0;
          for (int64_t x : v) sum += x;
          return sum;
        };
        auto data = values<int32_t>(comm.rank(), total(send), 8);
        std::vector<int32_t> result(static_cast<size_t>(total(recv))), want;
        for (int r = 0; r < size; ++r) {
          int64_t begin = 0;
          for (int to = 0; to < comm.rank(); ++to) begin += block(r, to);
          for (int64_t i = 0; i < block(r, comm.rank()); ++i)
            want.push_back(value<int32_t>(r, begin + i, 8));
        }
        INFO(size, " ranks, unit ", unit);
        comm.all_to_all_v(data, send, result, recv);
        CHECK(same_bits(result, want));
      }
    });
}

TEST_CASE("comm: broadcast from every root") {
  for (int size : comm_fixture().sizes())
    comm_fixture().run(size, [size](Communicator& comm) {
      for_moved_types([&]<class T>(Element<T>) {
        for (int root = 0; root < size; ++root)
          for (int64_t count : kCounts) {
            if (count == kLargeCount && root != size - 1) continue;
            auto data = values<T>(comm.rank(), count, 9);
            comm.broadcast(data, root);
            INFO(size, " ranks, ", count, " ", name(DTypeOf<T>::value), " from ", root);
            CHECK(same_bits(data, values<T>(root, count, 9)));
          }
      });
    });
}

TEST_CASE("comm: messages arrive in order for each sender, receiver and tag") {
  for (int size : comm_fixture().sizes()) {
    if (size < 2) continue;
    comm_fixture().run(size, [size](Communicator& comm) {
      int next = (comm.rank() + 1) % size, previous = (comm.rank() + size - 1) % size;
      for (int64_t count : kCounts) {
        auto a = values<float>(comm.rank(), count, 10), b = values<float>(comm.rank(), count, 11),
             c = values<float>(comm.rank(), count, 12);
        std::vector<Pending> sends;
        sends.push_back(comm.start_send(a, next, 0));
        sends.push_back(comm.start_send(b, next, 5));
        sends.push_back(comm.start_send(c, next, 0));
        std::vector<float> x(a.size()), y(a.size()), z(a.size());
        comm.recv(y, previous, 5);  // not the one that was sent first
        comm.recv(x, previous, 0);
        comm.recv(z, previous, 0);
        for (Pending& p : sends) p.wait();
        INFO(size, " ranks, ", count);
        CHECK(same_bits(x, values<float>(previous, count, 10)));
        CHECK(same_bits(y, values<float>(previous, count, 11)));
        CHECK(same_bits(z, values<float>(previous, count, 12)));
      }
    });
  }
}

TEST_CASE("comm: blocking messages pass down a chain") {
  for (int size : comm_fixture().sizes()) {
    if (size < 2) continue;
    comm_fixture().run(size, [size](Communicator& comm) {
      for (int round = 0; round < 20; ++round) {
        std::vector<int64_t> token = {round};
        if (comm.rank() > 0) comm.recv(token, comm.rank() - 1);
        CHECK(token[0] == round + comm.rank());
        token[0] += 1;
        if (comm.rank() + 1 < size) comm.send(token, comm.rank() + 1);
      }
    });
  }
}

TEST_CASE("comm: nobody passes a barrier before the last has come") {
  using namespace std::chrono_literals;
  for (int size : comm_fixture().sizes()) {
    if (size < 2) continue;
    comm_fixture().run(size, [size](Communicator& comm) {
      for (int late = 0; late < size; ++late) {
        comm.barrier();
        auto now = [] {
          return static_cast<int64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
        };
        if (comm.rank() == late) std::this_thread::sleep_for(30ms);
        int64_t came = now();
        comm.barrier();
        int64_t left = now();  // one clock for all processes of a machine
        CHECK(left >= comm.all_reduce_value(came, ReduceOp::max));
      }
    });
  }
}

}  // namespace
}  // namespace mtrain::contract
