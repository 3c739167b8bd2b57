// all_reduce and reduce_scatter against their definition, to the bit.
#include <cmath>
#include <limits>

#include "contract/comm/fixture.h"

namespace mtrain::contract {
namespace {

// The definition: in the order of ranks, float for the 16-bit types.
template <class T>
T combine(int size, int64_t i, uint64_t salt, ReduceOp op) {
  using A = std::conditional_t<std::is_same_v<T, bf16> || std::is_same_v<T, f16>, float, T>;
  auto sum = static_cast<A>(value<T>(0, i, salt));
  for (int r = 1; r < size; ++r) {
    auto x = static_cast<A>(value<T>(r, i, salt));
    if (op == ReduceOp::max) {
      sum = std::max(sum, x);
    } else if (op == ReduceOp::min) {
      sum = std::min(sum, x);
    } else if constexpr (std::is_integral_v<A>) {
      sum = static_cast<A>(static_cast<std::make_unsigned_t<A>>(sum) +
                           static_cast<std::make_unsigned_t<A>>(x));
    } else {
      sum += x;
    }
  }
  return T(sum);
}

template <class T>
std::vector<T> combined(int size, int64_t count, uint64_t salt, ReduceOp op) {
  std::vector<T> v(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) v[static_cast<size_t>(i)] = combine<T>(size, i, salt, op);
  return v;
}

// One rank holds the result against the definition; the others' must be the same bits.
template <class T>
void check_on_all(Communicator& comm, const std::vector<T>& result,
                  const std::function<std::vector<T>()>& want) {
  if (comm.rank() == 0) CHECK(same_bits(result, want()));
  std::vector<T> first = result;
  comm.broadcast(first, 0);
  CHECK(same_bits(first, result));
}

const ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::max, ReduceOp::min};

TEST_CASE("comm: all_reduce gives every rank the same bits, those of the definition") {
  for (int size : comm_fixture().sizes())
    comm_fixture().run(size, [size](Communicator& comm) {
      for_reducible_types([&]<class T>(Element<T>) {
        for (int64_t count : kCounts)
          for (ReduceOp op : kOps) {
            if (count == kLargeCount && op != ReduceOp::sum) continue;
            INFO(size, " ranks, ", count, " ", name(DTypeOf<T>::value), " ", name(op));
            auto data = values<T>(comm.rank(), count, 3);
            comm.all_reduce(data, op);
            check_on_all<T>(comm, data, [&] { return combined<T>(size, count, 3, op); });
          }
      });
    });
}

TEST_CASE("comm: reduce_scatter gives each rank its part, elsewhere or in place") {
  for (int size : comm_fixture().sizes())
    comm_fixture().run(size, [size](Communicator& comm) {
      for_reducible_types([&]<class T>(Element<T>) {
        for (int64_t whole : kCounts)
          for (ReduceOp op : kOps) {
            int64_t part = whole < 10 ? whole : whole / size;
            if (whole == kLargeCount && op != ReduceOp::sum) continue;
            INFO(size, " ranks, ", part, " ", name(DTypeOf<T>::value), " ", name(op));
            auto input = values<T>(comm.rank(), part * size, 4), data = input;
            std::vector<T> result(static_cast<size_t>(part));
            comm.reduce_scatter(data, result, op);
            CHECK(same_bits(data, input));
            std::vector<T> want(result.size());
            for (int64_t i = 0; i < part; ++i)
              want[static_cast<size_t>(i)] = combine<T>(size, comm.rank() * part + i, 4, op);
            CHECK(same_bits(result, want));
            T* own = data.data() + comm.rank() * part;
            comm.reduce_scatter(data, std::span<T>(own, result.size()), op);
            CHECK(same_bits(std::vector<T>(own, own + part), want));
          }
      });
    });
}

TEST_CASE("comm: results repeat to the bit and do not depend on how a buffer is split") {
  for (int size : comm_fixture().sizes())
    comm_fixture().run(size, [](Communicator& comm) {
      const int64_t count = 50021;
      auto whole = values<bf16>(comm.rank(), count, 5), again = whole, in_parts = whole;
      comm.all_reduce(whole);
      comm.all_reduce(again);
      CHECK(same_bits(whole, again));
      for (int64_t begin = 0, n = 1; begin < count; begin += n, n = std::min(n * 3, count - begin))
        comm.all_reduce(
            std::span(in_parts).subspan(static_cast<size_t>(begin), static_cast<size_t>(n)));
      CHECK(same_bits(whole, in_parts));
    });
}

TEST_CASE("comm: a NaN or an infinity of any rank reaches every rank") {
  for (int size : comm_fixture().sizes())
    comm_fixture().run(size, [size](Communicator& comm) {
      const float nan = std::numeric_limits<float>::quiet_NaN(),
                  inf = std::numeric_limits<float>::infinity();
      for (int bad = 0; bad < size; ++bad)
        for (ReduceOp op : kOps) {
          auto rank = static_cast<float>(comm.rank());
          CHECK(std::isnan(comm.all_reduce_value(comm.rank() == bad ? nan : rank, op)));
          float with_inf = comm.all_reduce_value(comm.rank() == bad ? inf : rank, op);
          bool hidden = op == ReduceOp::min && size > 1;
          CHECK((hidden ? std::isfinite(with_inf) : with_inf == inf));
        }
      // Past the largest value: the sum of 16-bit floats is rounded once, to infinity in half.
      auto half = comm.all_reduce_value(f16(65504.0f));
      CHECK(static_cast<float>(half) == (size == 1 ? 65504.0f : inf));
    });
}

TEST_CASE("comm: small floats are added in float") {
  for (int size : comm_fixture().sizes())
    comm_fixture().run(size, [size](Communicator& comm) {
      // In bf16 itself 256 + 1 is 256, whatever follows.
      auto x = comm.all_reduce_value(bf16(comm.rank() == 0 ? 256.0f : 1.0f));
      CHECK(static_cast<float>(x) ==
            static_cast<float>(bf16(256.0f + static_cast<float>(size - 1))));
      if (size == 8) CHECK(static_cast<float>(x) == 264.0f);
    });
}

}  // namespace
}  // namespace mtrain::contract
